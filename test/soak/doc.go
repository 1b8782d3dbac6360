// Package soak holds the real binary under traffic for as long as one likes, and does
// to it what can happen to a proxy on a node: it is killed, its rules are tampered with,
// neighbours write theirs, the API server fails, its configuration and its mode change,
// while Services and endpoints come and go all the time.
//
// What happens when is drawn from a seed. Every connection and every datagram is
// counted, and those that are lost must be excused:
//
//   - Only who tampers with the rules loses packets, from then on until the rules are
//     repaired. All else loses nothing.
//   - The rules are repaired soon. How soon is measured and reported; what takes longer
//     than a machine under load can explain is a failure.
//   - While new connections to a Service are lost for longer than a second, neither
//     /healthz nor status say healthy, and explain does not say served.
//   - Clients of a Service with session affinity keep their endpoint, and clients that
//     source ranges do not admit are never answered.
//   - After each chapter the kernel holds what a fresh proxy writes into an empty one.
//
// "make soak" runs it; "make test" has a short run of a fixed seed.
package soak
