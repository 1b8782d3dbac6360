// Package scenario runs scripts that say what the proxy must do with packets.
//
// A script is a txtar archive: comments and steps first, one step a line, then
// the files that the steps refer to. It runs in a lab of its own (package lab
// draws it), in any mode of the proxy, unchanged.
//
//	# A client outside keeps its address under external traffic policy Local.
//	# semantics: local-keeps-source
//	let web 10.96.0.10 fd00:10:96::10
//	service web NodePort 80:8080 nodePort=30080 externalTrafficPolicy=Local
//	endpoints web pod1 pod2 remote1
//	start
//	expect client -> node1:30080 answered by pod1,pod2 source client
//
// # Objects
//
//	let NAME IPV4 IPV6        names a pair of addresses
//	service NAME TYPE PORT[:TARGET][/PROTOCOLS]... [FIELD=VALUE]...
//	                          writes a plain Service into NAME.yaml, or writes it
//	                          again; its ClusterIPs are those that let gave to NAME
//	apply FILE...             puts files of the archive into the proxy's directory
//	replace FILE by FILE      gives the first the content of the second, another
//	                          version of the same objects
//	remove FILE...            takes them away
//	endpoints SERVICE [ENDPOINT...]
//	                          writes the EndpointSlices of an applied Service, as
//	                          the controller would, into endpoints-SERVICE.yaml
//
// A port of "service" is there for tcp, udp and sctp unless the step says otherwise. Its fields
// are nodePort=N, one for each port, externalIPs=NAMES and ingress=NAMES of pairs of
// addresses, externalTrafficPolicy=Local, internalTrafficPolicy=Local, algorithm=WORD, and
// endpoints=HOSTS, which does what the step "endpoints" does. Services with other
// fields, or in which fields matter as they are written, are YAML in the archive.
//
// An ENDPOINT is a host of the lab, pod1 or remote2 or node1, with remarks in
// parentheses: notready, terminating (not ready but serving), notserving,
// weight=N, and zone=Z and node=N for topology hints. A Node object for node1 in zone a is
// there from the beginning, unless the archive has a node1.yaml. While the
// proxy runs, each of these steps waits until it is in the kernel.
//
// # The proxy
//
//	flags FLAG...             of the next start; without this step, the cluster
//	                          CIDRs, by which pods are detected
//	mode MODE                 of the next start; without this step, the mode that
//	                          the script runs in
//	start                     starts it and waits until it is in the kernel
//	stop, kill                ends it politely, or at once
//	restart                   kill and start
//	flush                     deletes all rules on node1, as a clumsy neighbour would
//	log has TEXT              waits for a line of its log
//	kernel has TEXT           waits until the kernel's rules have TEXT in them
//	kernel lacks TEXT         the opposite
//	kernel of MODE has TEXT, kernel of MODE lacks TEXT
//	                          about the rules of another mode
//
//	verdict SERVICE [from KIND] VERDICT [TEXT]
//	                          waits until services, status, explain, the page and the metrics
//	                          say so of clients of a KIND (pod, node, outside), or of all
//	explain FROM -> TO [PROTOCOLS] [FAMILIES] VERDICT [TEXT]
//	                          waits until explain says so of packets (tcp by default), with
//	                          TEXT in its answer; its exit code is 0 for works only
//
// # Packets
//
//	expect FROM -> TO [PROTOCOLS] [FAMILIES] VERDICT ...
//
// FROM is a list of hosts, TO a list of NAME:PORT, where NAME was named by let
// or is a host, or node1-spare, or of ADDRESS:PORT; lists are separated by commas.
// Every host is tried to every target, by tcp, udp and sctp, on v4 and v6,
// unless the step says otherwise. The verdict is one of
//
//	answered [by HOSTS] [evenly | turns | sticky | together] [source HOST] [hairpin HOST]
//	refused, dropped          a reset or ICMP error comes back, or nothing does
//	passed                    the packet left node1 for the world, untouched
//
// "by pod1,pod2" means exactly those two over many connections, each of them at
// times; pod1:8081 asks for the port as well. With "evenly" they share fairly,
// with "turns" exactly, one after the other; pod1*3 has three times the share.
// With "sticky" all connections of one host to one target go to the same of them,
// and with "together" those to all targets of the line do. "source client" is the
// source address that they see; "source node1" is its first address, "source
// node1-spare" its other one; "source self" is the client itself; "hairpin node1" is
// the source that an endpoint sees which connects to itself. An expectation that
// does not hold is tried again for a few seconds.
//
//	http FROM -> TO [FAMILIES] STATUS [TEXT]
//	                          an HTTP server answers with this status, and with
//	                          TEXT in its header or body; tried again likewise
//	forgotten FROM -> TO [PROTOCOLS] [FAMILIES] after DURATION
//	                          a host that was away for so long ends up with
//	                          another endpoint sooner or later: affinity is over
//	again                     all expectations since the objects or flags last changed,
//	                          but for those that later ones contradict
//	open NAME FROM -> TO [PROTOCOLS] [FAMILIES] [unanswered]
//	                          opens connections (tcp by default), or
//	                          udp sockets that send and get no answer yet;
//	                          one of sctp is an association
//	alive NAME [by HOST]      they still work, with the endpoint they began with
//	moved NAME to HOSTS       the same sockets are answered by one of HOSTS now, or
//	                          by nobody; pod1:8081 asks for the port as well; tried
//	                          again likewise
//	reset NAME [when sending] the connections are reset, though their clients only
//	                          wait, or as soon as those send something
//	traffic FROM -> TO [PROTOCOLS] [FAMILIES]
//	                          starts background traffic on new and standing connections
//	lost N                    ends it, and at most N connections were lost
//	exec HOST COMMAND         runs a shell command there, in a directory with the archive's files
//	output has TEXT, output lacks TEXT
//	                          about what the last exec printed
//
// A step that begins with "only MODES:" or "except MODES:" is for these modes, or
// for all but these; a list is separated by commas. The modes are nftables,
// iptables-nft, iptables-legacy, ipvs and userspace; iptables means both of its variants.
//
// # The end
//
// Every script ends the same way, without saying so: the proxy is killed and
// started again, and all expectations since the last change hold again; then
// every object is removed, and no address that was named by let is left in the
// kernel's rules.
package scenario
