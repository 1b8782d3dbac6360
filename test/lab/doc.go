// Package lab is a small cluster made of network namespaces, with real packets
// and the real binary in it:
//
//	              client            client2
//	         198.51.100.10       203.0.113.10
//	        2001:db8:1::10      2001:db8:2::10
//	               │                  │
//	  ─────────────┴──────┬───────────┴──────┬───── wire (a bridge in "world",
//	                      │                  │      which is .254 and ::254)
//	                192.0.2.10          192.0.2.20
//	              2001:db8::10        2001:db8::20
//	   spare: 192.0.2.11  │                  │
//	        2001:db8::11  │                  │
//	                   node1               node2
//	   ┌────────────────┬─┴──────────┐       ├──────────────────┐
//	  pod1             pod2       (podbr0)  remote1          remote2
//	10.244.1.1      10.244.1.2       │    10.244.2.1       10.244.2.2
//	fd00:10:244:1::1      …:1::2    pod3  fd00:10:244:2::1        …:2::2
//	                           10.244.1.3
//	                     fd00:10:244:1::3
//
// The proxy under test runs on node1. Pods hang on routed point-to-point links
// without a shared bridge, because replies that stay on a bridge bypass NAT;
// pod3 sits alone behind the bridge podbr0, which changes nothing for it but
// the name of the interface it arrives through. All pod interfaces of node1
// start with "pod".
//
// Clients have routes to the nodes, and through node1 to the service range
// (10.96.0.0/16, fd00:10:96::/112) and to the range for external and load
// balancer IPs (198.18.0.0/16, 2001:db8:18::/48), and no default route. A reply
// that does not come back through node1 therefore reaches a client from an
// address it never spoke to, and the probe fails: missing masquerading shows.
// remote pods reach the service and external ranges through node1 as well.
//
// Pods and nodes run echo servers for TCP, UDP and SCTP on EchoPorts that
// answer with who they are and which source they saw; nodes do so on LoopbackPort
// of their loopback addresses as well. The world is the default
// gateway of both nodes: it answers nothing, but remembers what reached it, so
// that a probe can distinguish a packet that the proxy dropped from one it left alone.
//
// StartQuartet makes another lab, of four nodes with a router before them: see quartet.go.
//
// Nothing here needs package testing: everything returns errors, so that
// commands can use a lab as well as tests. Every namespace has a thread of its
// own that entered it; sockets are made there and used anywhere. Namespaces
// are visible to "ip netns" under names that carry the process id, and Sweep
// removes those of processes that died without cleaning up.
//
// The language of the scenarios in testdata is described in package scenario.
package lab
