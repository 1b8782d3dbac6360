//go:build linux

package iptables

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// environment is common to all rules of a family.
type environment struct {
	words    *wording
	detector plan.Detector
}

// condition selects packets by their sender.
type condition struct {
	not    bool
	source netip.Prefix
	in     string
	node   bool // the node itself
}

func (c condition) on(r rule) rule {
	switch {
	case c.in != "":
		r.in, r.notIn = c.in, c.not
	case c.node:
		r.match = fromNode + r.match
	case c.source.IsValid():
		r.source, r.notSource = c.source, c.not
	}
	return r
}

func (env *environment) pods() []condition {
	d := &env.detector
	switch {
	case d.Interface != "":
		return []condition{{in: d.Interface}}
	case d.InterfacePrefix != "":
		return []condition{{in: startingWith(d.InterfacePrefix)}}
	}
	var list []condition
	for _, s := range d.Sources {
		list = append(list, condition{source: s})
	}
	return list
}

// startingWith is the notation for interfaces whose names start with a prefix. A
// prefix of the maximum length of a name leaves no room for the +, and is the name of
// one interface.
func startingWith(prefix string) string {
	if len(prefix) >= unix.IFNAMSIZ-1 {
		return prefix
	}
	return prefix + "+"
}

// inside are the conditions of which pods and the node itself meet one.
func (env *environment) inside() []condition { return append(env.pods(), condition{node: true}) }

// marking is the condition under which packets jump to a chain that marks them for
// masquerading.
func (env *environment) marking(m plan.Masquerade) (from condition, chain string, any bool) {
	switch m {
	case plan.MasqueradeAlways:
		return condition{}, markChain, true
	case plan.MasqueradeNode:
		return condition{node: true}, markChain, true
	case plan.MasqueradeOffCluster:
		switch pods := env.pods(); {
		case len(pods) == 0:
		case len(pods) > 1 || pods[0].in == "" && pods[0].source.Bits() == 0:
			return condition{}, markOffClusterChain, true
		default:
			pods[0].not = true
			return pods[0], markChain, true
		}
	}
	return condition{}, "", false
}

// wording is how rules of a family express things.
type wording struct {
	addressBits int
	unreachable string
	recentMask  string
	loopback    netip.Prefix
}

var words = map[model.Family]*wording{
	model.IPv4: {
		addressBits: 32,
		unreachable: "icmp-port-unreachable",
		recentMask:  "255.255.255.255",
		loopback:    netip.MustParsePrefix("127.0.0.0/8"),
	},
	model.IPv6: {
		addressBits: 128,
		unreachable: "icmp6-port-unreachable",
		recentMask:  "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		loopback:    netip.MustParsePrefix("::1/128"),
	},
}

// rejection is how a connection of a protocol is rejected. A reset also ends a TCP
// connection that has lost its conntrack entry; an ICMP error does not.
func (w *wording) rejection(p model.Protocol) string {
	if p == model.TCP {
		return "tcp-reset"
	}
	return w.unreachable
}

// protocolName is the name of a protocol, and of the match that knows its ports.
func protocolName(p model.Protocol) string {
	switch p {
	case model.UDP:
		return "udp"
	case model.SCTP:
		return "sctp"
	}
	return "tcp"
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
