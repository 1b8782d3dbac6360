// Package web is the page that shows a person what the proxy does: how it is,
// what fails, which Services there are and where their connections go.
//
// What it promises:
//
//   - It only reads. It holds up planning for the time of a copy of pointers, and
//     the kernel for nothing.
//   - It costs little while it is open. The Services are put in order again only
//     after a change, and the kernel's counters are read for a small part of the
//     time. What is kept for that is forgotten when nobody looks any more.
//   - An answer has a bounded number of rows, however big the cluster is, and a
//     bounded number of answers are made at a time.
//   - All text of others is escaped. No script runs but the page's own, nothing is
//     loaded from elsewhere, and everything but the live updates works without
//     script.
//
// The script asks for the page it is on again, every two seconds, and takes over
// what differs. So there is one renderer, and no second interface to keep.
package web
