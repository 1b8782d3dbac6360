// Package leftovers removes what another kube-proxy left in the kernel, be it
// upstream's or this one in another mode: its iptables chains, its IPVS services
// with their link and sets, and its nftables tables.
//
// What it promises:
//
//   - It does nothing by itself. Whoever calls it knows that other rules carry
//     the traffic by then.
//   - It goes by the names that kube-proxy gives, in full, not by a prefix:
//     kubelet and other programs use KUBE- as well. A chain that somebody
//     else's rule leads into stays, with all that it leads to.
//   - The chains of a table leave the path of packets at one stroke. What
//     cannot be removed is told, with a remedy, and keeps nothing else from
//     being removed.
//   - What the caller says that it uses stays.
//   - No program is run but iptables-legacy-save and -restore, and these only
//     if the kernel has chains of kube-proxy's in the tables of old: those have
//     no other interface.
//
// It works in the network namespace of the caller's thread.
package leftovers
