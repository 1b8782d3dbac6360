package iptables

import (
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
