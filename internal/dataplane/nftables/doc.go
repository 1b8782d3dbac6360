// Package nftables programs what plan desires into nftables, by netlink.
//
// The ruleset is a fixed number of named maps and sets, and a small chain for each
// distinct size of pool; Services and endpoints are only elements of those maps. A
// packet finds its Service with one lookup and its endpoint with a second, however
// many there are, and a transaction is proportional to the change. See
// docs/nftables.md for the layout and its reasons.
//
// Other modes build on the table: their Target takes the connections of routes for which
// plan leaves the choice of an endpoint to somebody else.
//
// The kernel is read once, when the process starts and adopts what an earlier one
// left. After that, a mirror of what was written says what to write next. Writes of
// other programs to our tables are detected and repaired.
package nftables
