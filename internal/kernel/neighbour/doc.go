// Package neighbour follows who is on the links of the machine: what the kernel knows of
// neighbours, and which addresses are reached without a router.
package neighbour
