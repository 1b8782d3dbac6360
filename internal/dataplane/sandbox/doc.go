// Package sandbox is the proxy without the kernel's help: node ports of TCP and UDP,
// by sockets that this process listens on. It needs no privileges, and serves where
// there is no netfilter: in gVisor, in rootless containers, on other systems.
//
// All else, ClusterIPs before anything, needs packets to be redirected, and is not
// planned in this mode.
package sandbox
