// Package coexist is what nftables mode owes to the rules of iptables that other
// programs have on the node.
//
// A packet passes the chains of both, and iptables mode has rules in those of
// iptables that other programs rely on. So it finds what keeps connections to
// Services from passing (a policy DROP of chain FORWARD) and which rules lead
// into chains that nobody looks after any more, and it keeps KUBE-MARK-MASQ in
// table nat, into which network plugins lead packets to have them masqueraded.
//
// What it promises:
//
//   - Where iptables is not in use, it makes nothing. Nothing of others is changed.
//   - What iptables-nft keeps is read and written by netlink, and that of
//     iptables-legacy is read without programs; only to write KUBE-MARK-MASQ there
//     takes iptables-legacy-restore.
//
// It works in the network namespace of the caller's thread.
package coexist
