// Package ipvs programs IPVS, the kernel's layer 4 load balancer, by generic netlink.
//
// A virtual service is an address and port, or a packet mark, at which IPVS takes new
// connections; a scheduler chooses one of its destinations for each. The kernel knows
// neither transactions nor owners nor notifications: each command takes effect by
// itself. Many of them can be sent at once, in a Batch.
package ipvs
