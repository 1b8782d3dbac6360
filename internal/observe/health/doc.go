// Package health answers HTTP health checks.
//
// Services is for load balancers: for every Service with a health check node
// port it listens there, on all node port addresses, and answers with the
// number of usable endpoints on this node.
//
// Guarantees:
//
//   - The engine never waits for a socket. Services runs in a goroutine of its own
//     and only learns from the engine that it should look again.
//   - An address that cannot be listened on is reported once, with a remedy, and
//     retried with a backoff. All others are served meanwhile.
//   - What is no longer desired stops listening immediately; requests in progress
//     are completed.
//   - Nothing is served before the kernel was programmed for the first time.
//
// Proxy is for cloud providers and the kubelet: whether the proxy works, whether
// it has begun to, and whether new connections should come to this node at all,
// which Eligibility determines.
//
// Programming determines the health of the proxy that both report.
package health
