// Package coexist lets nftables mode coexist with iptables rules of other programs on
// the node.
//
// Those programs may rely on chains that iptables mode has. So it finds rules that lead into
// chains that are no longer updated, and it maintains KUBE-MARK-MASQ in table nat, into which
// network plugins lead packets to have them masqueraded. What drops packets to Services is
// found by package nodeproblem.
//
// Guarantees:
//
//   - Where iptables is not in use, it creates nothing. Nothing of others is changed.
//   - Tables of iptables-nft are read and written by netlink, and those of
//     iptables-legacy are read without its commands; only writing KUBE-MARK-MASQ there
//     needs iptables-legacy-restore.
//
// It works in the network namespace of the caller's thread.
package coexist
