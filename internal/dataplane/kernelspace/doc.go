// Package kernelspace is the mode of nodes with Windows: Desired as load balancers of the Host
// Networking Service (HNS), and as endpoints for addresses on other nodes.
//
// A frontend is one load balancer, which exists as long as the frontend has an endpoint. Pods of
// this node have an endpoint of HNS, which the CNI plugin makes; for addresses elsewhere the
// dataplane makes one, once for all frontends, and deletes it after the last of them.
//
// The ID of an object follows from what it is for, and begins with the bytes of the word sluice. So
// objects of this proxy are recognised by any later process, whenever an earlier one ended, and
// nothing else is ever changed or deleted. What HNS holds is remembered: a change costs the calls
// that it needs, and reading all of it is for the start, after failures, and for Verify.
//
// Nothing here needs Windows but the service itself.
package kernelspace
