// Package iptables carries out what plan desires with iptables, through the driver
// internal/kernel/iptables.
//
// Upstream's well-known chains have their usual meaning, but a packet does not pass
// all Services: it finds its frontend through a tree of chains with a few rules each,
// and a change rewrites only the chains that it touches. See docs/iptables.md for the
// structure and the reasons.
//
// The kernel is listed once, when the process starts and adopts the chains of an
// earlier one; after that a mirror of fingerprints says what differs. Changes of our
// chains by other programs are detected and repaired. Rules of others are never
// touched.
//
// The path of a change: Dataplane.Apply begins a commit (commit.go) and, for each
// familyState (family.go), turns the frontends into items, one for each service port.
// commit.program puts them into the ruleset (ruleset.go) as groups (group.go), whose
// entries are in trees (tree.go) and whose pools and routings may have chains of their
// own, and calls commit.settle. commit.flush (write.go) has ruleset.layout write the
// texts of the chains that changed, table.input (table.go) compares
// them with the mirror, and commit.restore runs iptables-restore and updates the
// mirror. What is refused is traced to its frontends by commit.attribute, or found by
// commit.bisect, and left out. Dataplane.Reconcile (reconcile.go) lists the tables,
// fills an empty familyState and goes the same way from commit.settle on.
package iptables
