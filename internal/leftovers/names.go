package leftovers

import "strings"

// ipvsLink carries the addresses of all IPVS services but those of node ports.
const ipvsLink = "kube-ipvs0"

// ipsets are the sets of IPVS mode, for IPv4.
var ipsets = []string{
	"KUBE-LOOP-BACK", "KUBE-CLUSTER-IP", "KUBE-IPVS-IPS",
	"KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL",
	"KUBE-LOAD-BALANCER", "KUBE-LOAD-BALANCER-LOCAL", "KUBE-LOAD-BALANCER-FW",
	"KUBE-LOAD-BALANCER-SOURCE-IP", "KUBE-LOAD-BALANCER-SOURCE-CIDR",
	"KUBE-NODE-PORT-TCP", "KUBE-NODE-PORT-LOCAL-TCP",
	"KUBE-NODE-PORT-UDP", "KUBE-NODE-PORT-LOCAL-UDP",
	"KUBE-NODE-PORT-SCTP-HASH", "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
	"KUBE-HEALTH-CHECK-NODE-PORT",
}

// maxSetName is the longest name that the kernel takes; kube-proxy cuts longer
// ones off.
const maxSetName = 31

// ipv6Name is the name of the same set for IPv6.
func ipv6Name(set string) string {
	name := strings.Replace(set, "KUBE-", "KUBE-6-", 1)
	return name[:min(len(name), maxSetName)]
}

// proxySets are the names of all sets of IPVS mode.
func proxySets() []string {
	var names []string
	for _, set := range ipsets {
		names = append(names, set, ipv6Name(set))
	}
	return names
}
