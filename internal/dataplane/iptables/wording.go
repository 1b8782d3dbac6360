package iptables

import (
	"net/netip"

	"sluice/internal/model"
)

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

// single is the prefix of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
