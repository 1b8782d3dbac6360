// Package perservice collects metrics of single Services: connections, refused
// packets, endpoints, how fast the last change was programmed, and failures.
//
// Guarantees:
//
//   - The engine never waits: commits are queued, and processed by Run or by the
//     next scrape.
//   - Counters of a Service are monotonic while it exists, even if the kernel
//     resets its own. They start at zero with the process, and again when a
//     Service is removed and added back.
//   - Refused packets are not counted as connections.
//   - The number of Services with series of their own is limited. The others share
//     one set of series, and move up when one of the former is removed.
//   - The kernel is read at scrapes only, at most once a second.
//
// The package writes the text format itself: going through the registry of the
// process would cost ten times as much for that many series. For other formats the
// metrics are gathered.
package perservice
