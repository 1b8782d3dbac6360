// Package perservice keeps numbers for each Service: connections, refused
// packets, endpoints, how fast its last change was programmed, and failures.
//
// What it promises:
//
//   - The engine never waits: a commit is only noted, and worked off by Run or
//     by the next scrape.
//   - Counters of a Service never go back while it is there, whatever the kernel
//     does with its own. They begin with the process: a Service that was there
//     before begins at zero, and so does one that was removed and comes again.
//   - What is refused is no connection.
//   - At most so many Services have series of their own. The others share one
//     set of series, and take the places of those that are removed.
//   - The kernel is asked when somebody scrapes, once a second at most.
//
// The metrics are written as text by the package itself. Going through the
// registry of the process would cost ten times as much for as many series. For other
// formats they are gathered.
package perservice
