package leftovers

import (
	"slices"
	"strings"
)

// entryChains are those that kube-proxy's rules in base chains lead into.
var entryChains = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING",
	"KUBE-FORWARD", "KUBE-PROXY-FIREWALL",
	"KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", // of IPVS mode
}

// innerChains are those that only its own chains lead into, or nothing.
var innerChains = []string{
	"KUBE-MARK-MASQ", "KUBE-PROXY-CANARY",
	"KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", // of IPVS mode
}

// hashedChains are followed by a hash of the Service or endpoint they are for.
// KUBE-XLB- was in use until Kubernetes 1.23.
var hashedChains = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-", "KUBE-XLB-"}

const hashLen = 16

// isProxyChain tells whether kube-proxy makes chains of that name. KUBE-FIREWALL,
// KUBE-MARK-DROP, KUBE-KUBELET-CANARY and KUBE-IPTABLES-HINT are kubelet's.
func isProxyChain(name string) bool {
	if slices.Contains(entryChains, name) || slices.Contains(innerChains, name) {
		return true
	}
	for _, prefix := range hashedChains {
		if hash, ok := strings.CutPrefix(name, prefix); ok && isHash(hash) {
			return true
		}
	}
	return false
}

// isHash tells whether the text is the start of a hash in base 32.
func isHash(s string) bool {
	return len(s) == hashLen && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// tables are those of iptables that kube-proxy has chains in.
var tables = []string{"nat", "filter", "mangle"}

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
