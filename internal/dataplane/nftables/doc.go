// Package nftables carries out what plan desires with nftables, by netlink.
//
// The ruleset is a fixed handful of named maps and sets, a small chain for each
// distinct size of pool, and nothing for a Service or an endpoint but elements
// of those maps. A packet finds its Service with one lookup and its endpoint
// with a second one, however many there are, and a change costs a transaction
// as small as the change. See docs/nftables.md for the shape and the reasons.
//
// The kernel is read once, when the process starts and adopts what an earlier
// one left; after that a mirror of what was written tells what to write next.
// Whoever else changes our table is noticed, and the table is mended.
package nftables
