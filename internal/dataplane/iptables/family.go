package iptables

import (
	"net/netip"

	"sluice/internal/model"
	"sluice/internal/xtables"
)

// Table is a table of one family that we have rules in.
type Table struct {
	Family model.Family
	Name   string
}

func (t Table) String() string { return words[t.Family].command + " " + t.Name }

// The tables. We have nothing in mangle, where upstream has a canary: every packet
// would pass the hooks of one table more.
const (
	nat    = "nat"
	filter = "filter"
	mangle = "mangle"
)

// tableNames are the tables in which there may be chains of kube-proxy.
var tableNames = []string{nat, filter, mangle}

// wording is what a family's programs are called, and how its rules say things.
type wording struct {
	command     string
	legacy      *xtables.Family
	addressBits int
	unreachable string
	recentMask  string
	loopback    netip.Prefix
	// bytecode is a filter that takes packets whose source is their destination.
	bytecode string
}

var words = map[model.Family]*wording{
	model.IPv4: {
		command:     "iptables",
		legacy:      xtables.IPv4,
		addressBits: 32,
		unreachable: "icmp-port-unreachable",
		recentMask:  "255.255.255.255",
		loopback:    netip.MustParsePrefix("127.0.0.0/8"),
		bytecode:    sameAddress(12, 16, 1),
	},
	model.IPv6: {
		command:     "ip6tables",
		legacy:      xtables.IPv6,
		addressBits: 128,
		unreachable: "icmp6-port-unreachable",
		recentMask:  "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		loopback:    netip.MustParsePrefix("::1/128"),
		bytecode:    sameAddress(8, 24, 4),
	},
}

// rejection is how a connection of a protocol is refused. A reset also ends a TCP
// connection that has lost its entry in the tracking table; an ICMP error does not.
func (w *wording) rejection(p model.Protocol) string {
	if p == model.TCP {
		return "tcp-reset"
	}
	return w.unreachable
}

// protocolName is what iptables calls a protocol and the match that knows its
// ports.
func protocolName(p model.Protocol) string {
	switch p {
	case model.UDP:
		return "udp"
	case model.SCTP:
		return "sctp"
	}
	return "tcp"
}

// single is the prefix that has one address only.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
