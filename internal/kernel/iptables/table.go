package iptables

import (
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
	"sluice/internal/model"
)

// Table is a table of one IP family.
type Table struct {
	Family model.Family
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
func Command(f model.Family) string { return LegacyFamily(f).Command }

// LegacyFamily is the family in the kernel's legacy implementation.
func LegacyFamily(f model.Family) *xtables.Family {
	if f == model.IPv6 {
		return xtables.IPv6
	}
	return xtables.IPv4
}

// NFTFamily is the family in nftables.
func NFTFamily(f model.Family) nft.Family {
	if f == model.IPv6 {
		return nft.IP6
	}
	return nft.IP
}
