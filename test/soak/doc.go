// Package soak runs the real binary under traffic for as long as you like, and
// disrupts it in every way that can happen on a node: it is killed, its rules are
// tampered with, neighbours write theirs, the API server fails, its configuration
// and its mode change, while Services and endpoints change all the time.
//
// A seed decides what happens when. Every connection and every datagram is counted,
// and losses must be excused:
//
//   - Only tampering with the rules may lose packets, until the rules are repaired.
//     Nothing else may.
//   - The rules are repaired soon. The time is measured and reported; more than a
//     busy machine can explain is a failure.
//   - While new connections to a Service are lost for longer than a second, neither
//     /healthz nor status report healthy, nor explain served.
//   - Clients keep their endpoint under session affinity, and those outside the
//     source ranges are never answered.
//   - After each chapter the kernel has what a fresh proxy writes into an empty
//     one.
//
// TestVerdicts compares what the proxy says of Services with what happens to connections, while
// endpoints, the node and the source fail. TestTenants measures what tenants feel of one that is
// hostile.
//
// "make soak" runs it; "make test" has a short run of a fixed seed.
package soak
