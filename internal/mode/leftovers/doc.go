// Package leftovers removes what another kube-proxy left in the kernel, be it
// upstream's or this one in another mode: what the modes' functions Remove remove.
//
// Guarantees:
//
//   - It does nothing by itself. The caller makes sure that other rules carry the
//     traffic.
//   - Objects are matched by the full names that kube-proxy gives, not by a prefix:
//     kubelet and other programs use KUBE- as well. A chain that rules of others
//     lead into stays, with all that it leads to.
//   - The chains of a table are unlinked from the path of packets atomically. What
//     cannot be removed is reported, with a remedy, and does not keep the rest from
//     being removed.
//   - What the running dataplane uses stays, and what connections depend on: Drain of a
//     mode removes that when they have ended.
//   - No command is run but iptables-legacy-save and -restore, and only if the kernel
//     has legacy chains of kube-proxy's: those have no other interface.
//
// It works in the network namespace of the caller's thread.
package leftovers
