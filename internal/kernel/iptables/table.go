//go:build linux

package iptables

import (
	"slices"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
)

// Table is a table of one IP family.
type Table struct {
	Family inet.Family
	Name   string
}

func (t Table) String() string { return Command(t.Family) + " " + t.Name }

// Names of tables.
const (
	NAT    = "nat"
	Filter = "filter"
	Mangle = "mangle"
)

// TableNames are the tables in which there may be chains of a kube-proxy.
var TableNames = []string{NAT, Filter, Mangle}

// Command is the name of a family's command.
func Command(f inet.Family) string { return LegacyFamily(f).Command }

// LegacyFamily is the family in the kernel's legacy implementation.
func LegacyFamily(f inet.Family) *xtables.Family {
	if f == inet.IPv6 {
		return xtables.IPv6
	}
	return xtables.IPv4
}

// NFTFamily is the family in nftables.
func NFTFamily(f inet.Family) nft.Family {
	if f == inet.IPv6 {
		return nft.IP6
	}
	return nft.IP
}

// MarkChain is a chain in table nat that marks packets for masquerading. Rules of
// other programs, such as network plugins, jump to it.
const MarkChain = "KUBE-MARK-MASQ"

// ServicesChain is the chain in table nat through which packets to Services go, with
// upstream's kube-proxy in iptables and ipvs mode.
const ServicesChain = "KUBE-SERVICES"

// ForwardChain is the chain in table filter in which iptables mode, upstream's too, accepts
// what it forwards: established connections, and those that it masquerades.
const ForwardChain = "KUBE-FORWARD"

// Chains is a set of names of chains.
type Chains struct {
	// Entry are those that rules in built-in chains may lead into. Only chains of the
	// set lead into the others.
	Entry []string
	Has   func(chain string) bool
}

// IPVSChains are those that only upstream's ipvs mode has.
var IPVSChains = Chains{
	Entry: []string{"KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"},
	Has: func(chain string) bool {
		names := []string{"KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL"}
		return slices.Contains(names, chain)
	},
}

// And returns the union with another set.
func (c Chains) And(o Chains) Chains {
	return Chains{
		Entry: slices.Concat(c.Entry, o.Entry),
		Has:   func(chain string) bool { return c.Has(chain) || o.Has(chain) },
	}
}

// Without returns the set without one chain.
func (c Chains) Without(name string) Chains {
	return Chains{Entry: c.Entry, Has: func(chain string) bool { return chain != name && c.Has(chain) }}
}
