// Package health tells those who ask by HTTP whether this node serves.
//
// Services is what load balancers ask: for every Service with a health check
// node port it listens there, on all node port addresses, and answers with the
// number of usable endpoints on this node.
//
// What it promises:
//
//   - The engine never waits for a socket. Services runs in a goroutine of its
//     own and only learns from the engine that it should look again.
//   - An address that cannot be listened on is reported once, with a remedy,
//     and tried again with a back-off. All others are served meanwhile.
//   - What is no longer desired stops listening at once; answers under way are
//     given to their end.
//   - Nothing is served before the kernel was programmed for the first time.
//
// Proxy is what cloud providers and the kubelet ask: whether the proxy does its
// work, and whether new connections should come to this node at all, which
// Eligibility knows.
//
// Programming is the opinion on the proxy that goes with each answer of both.
package health
