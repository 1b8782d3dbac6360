// Package web serves the page for browsers: the state of the proxy, what fails, the
// Services, and where their connections go.
//
// Guarantees:
//
//   - It only reads, but for single connections that visitors have sent, which are few and
//     for the page itself only. Planning waits while pointers are copied and some Services are
//     judged, the kernel never.
//   - An open page costs little. Services are sorted only after a change, and they are
//     judged and the kernel's counters read for a small part of the time. Caches expire
//     when the page is closed.
//   - The number of rows and squares is bounded, however big the cluster is, and so is
//     the number of concurrent requests.
//   - All names and errors are escaped. No script runs but the page's own, nothing is
//     loaded from other hosts, and everything but live updates works without script.
//
// The script fetches the current page every two seconds, a map every ten, and replaces what differs, so
// that there is one renderer and no second interface.
package web
