// Package history remembers what happened: to the Services, to their endpoints, and to
// the node. It is kept in memory, and bounded.
//
// A History observes the engine. It compares the frontends that a commit changed with
// those before it, outside of the engine's loop, and records the difference as Events:
// which endpoints were added and removed and why, and how long it took until the kernel
// had them. So are endpoints that do not answer, as often as connection tracking is looked at.
// Refused packets are recorded when the counters of the kernel are read, which
// happens when someone asks for Events or scrapes the metrics.
package history
