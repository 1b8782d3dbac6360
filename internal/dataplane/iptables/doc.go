// Package iptables carries out what plan desires with iptables, through the
// host's iptables-restore and iptables-save, legacy or nft, whichever the
// other users of the host chose.
//
// Upstream's well-known chains are there with their meaning, but a packet does
// not walk past all Services: it finds its frontend through a tree of chains,
// each with a few rules, and a change rewrites only the chains that it touches.
// See docs/iptables.md for the shape and the reasons.
//
// The kernel is listed once, when the process starts and adopts what an earlier
// one left; after that a mirror of what was written tells what to write next.
// Whoever else changes our chains is noticed, and they are mended. Rules of
// others are never touched.
package iptables
