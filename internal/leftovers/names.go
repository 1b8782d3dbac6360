package leftovers

import (
	"slices"
	"strings"

	"sluice/internal/dataplane/iptables"
)

// chainNames are names of chains.
type chainNames struct {
	// entry are those that rules in base chains lead into. Into the others lead
	// only chains of the same proxy, or nothing.
	entry []string
	has   func(chain string) bool
}

// proxyChains are those of iptables mode, ours and upstream's. IPVS mode has some
// of them too.
var proxyChains = chainNames{
	entry: []string{
		"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING",
		"KUBE-FORWARD", "KUBE-PROXY-FIREWALL", "KUBE-UNTRANSLATED",
	},
	has: iptables.Owns,
}

// ipvsChains are those that only IPVS mode has.
var ipvsChains = chainNames{
	entry: []string{"KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"},
	has: func(chain string) bool {
		switch chain {
		case "KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL":
			return true
		}
		return false
	},
}

// noChains are none.
var noChains = chainNames{has: func(string) bool { return false }}

// and adds others.
func (n chainNames) and(o chainNames) chainNames {
	return chainNames{
		entry: slices.Concat(n.entry, o.entry),
		has:   func(chain string) bool { return n.has(chain) || o.has(chain) },
	}
}

// without leaves one out.
func (n chainNames) without(name string) chainNames {
	return chainNames{entry: n.entry, has: func(chain string) bool { return chain != name && n.has(chain) }}
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
