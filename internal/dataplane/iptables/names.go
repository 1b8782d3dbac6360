//go:build linux

package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"

	"sluice/internal/kernel/iptables"
)

// ourPrefix is the prefix of the names of all our chains.
const ourPrefix = "KUBE-"

// Chains that upstream's kube-proxy has too, with the same meaning.
const (
	servicesChain         = "KUBE-SERVICES"
	externalServicesChain = "KUBE-EXTERNAL-SERVICES"
	nodePortsChain        = "KUBE-NODEPORTS"
	postroutingChain      = "KUBE-POSTROUTING"
	forwardChain          = iptables.ForwardChain
	firewallChain         = "KUBE-PROXY-FIREWALL"
	canaryChain           = "KUBE-PROXY-CANARY"
	markChain             = iptables.MarkChain
)

// Chains that only we have, once in a table.
const (
	untranslatedChain   = "KUBE-UNTRANSLATED"
	markOffClusterChain = "KUBE-MARK-OFF-CLUSTER"
	nodePortIPsChain    = "KUBE-NODEPORT-IPS"
	refusedPortsChain   = "KUBE-REFUSED-NODEPORTS"
	hairpinChain        = "KUBE-HAIRPIN"
	probeChain          = "KUBE-PROXY-PROBE"
)

var fixedChains = []string{
	servicesChain, externalServicesChain, nodePortsChain, postroutingChain, markChain, forwardChain,
	firewallChain, canaryChain, untranslatedChain, markOffClusterChain, nodePortIPsChain, refusedPortsChain, hairpinChain, probeChain,
}

// Prefixes of the names of a tree's chains, followed by the addresses or ports that a
// chain is for, or by a hash of them.
const (
	addressesPrefix         = "KUBE-IP-"
	externalAddressesPrefix = "KUBE-XIP-"
	firewallPrefix          = "KUBE-FWIP-"
	nodePortIPsPrefix       = "KUBE-NPIP-"
	portsPrefix             = "KUBE-PORT-"
	healthPortsPrefix       = "KUBE-HCP-"
	hairpinPrefix           = "KUBE-HPIP-"
)

var treePrefixes = []string{
	addressesPrefix, externalAddressesPrefix, firewallPrefix, nodePortIPsPrefix, portsPrefix, healthPortsPrefix, hairpinPrefix,
}

// Prefixes of the names of chains of a service port, followed by a hash. None is one of
// upstream's, which removes chains with its own prefixes that it does not use, and
// would fail forever if another chain of ours still leads there.
const (
	poolPrefix  = "KUBE-POOL-"  // a pool of endpoints
	routePrefix = "KUBE-ROUTE-" // which senders go to which pool
	admitPrefix = "KUBE-ADMIT-" // admits sources

	firewallPortPrefix = "KUBE-FWPORT-" // drops sources at a node port
)

// endpointPrefix is the prefix of the names of lists of clients.
const endpointPrefix = "KUBE-SEP-"

// upstreamPrefixes are those of upstream's chains of service ports and endpoints.
var upstreamPrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-"}

// hashedPrefixes are ours and upstream's.
var hashedPrefixes = append([]string{poolPrefix, routePrefix, admitPrefix, firewallPortPrefix}, upstreamPrefixes...)

const (
	hashLen    = 16
	maxNameLen = 28 // XT_EXTENSION_MAXNAMELEN, less the final zero
)

var base32Text = base32.StdEncoding

func hashed(prefix string, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return prefix + base32Text.EncodeToString(h.Sum(nil))[:hashLen]
}

// modeChains are those of iptables mode, ours and upstream's. IPVS mode has some of
// them too.
var modeChains = iptables.Chains{
	Entry: []string{
		servicesChain, externalServicesChain, nodePortsChain, postroutingChain, forwardChain, firewallChain, untranslatedChain,
	},
	Has: Owns,
}

// allChains are all that kube-proxies have, this one and upstream's, in any mode.
var allChains = modeChains.And(iptables.IPVSChains)

// ownChains are those that only this proxy has.
var ownChains = iptables.Chains{
	Entry: []string{untranslatedChain},
	Has: func(chain string) bool {
		return Owns(chain) && !sharedWithUpstream(chain)
	},
}

// sharedWithUpstream reports whether a chain of ours is one that upstream's kube-proxy creates too.
func sharedWithUpstream(chain string) bool {
	shared := []string{servicesChain, externalServicesChain, nodePortsChain, postroutingChain, markChain, forwardChain, firewallChain, canaryChain}
	return slices.Contains(shared, chain) ||
		slices.ContainsFunc(upstreamPrefixes, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// Owns reports whether a chain is one that we or upstream's kube-proxy create, and so
// ours to remove. Other KUBE- chains are kubelet's.
func Owns(chain string) bool {
	if slices.Contains(fixedChains, chain) {
		return true
	}
	for _, p := range treePrefixes {
		if strings.HasPrefix(chain, p) {
			return true
		}
	}
	for _, p := range hashedPrefixes {
		if rest, ok := strings.CutPrefix(chain, p); ok {
			return len(rest) == hashLen && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
		}
	}
	return false
}
