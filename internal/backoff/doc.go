// Package backoff says when to try again what failed: soon at first, and with
// growing pauses while it goes on failing.
package backoff
