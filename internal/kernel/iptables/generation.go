package iptables

import (
	"sluice/internal/base/inet"
	"sluice/internal/kernel/xtables"
)

// Generation identifies the state of the tables nat and filter, as far as that shows
// without listing them. It differs after most writes.
type Generation struct {
	NFT uint32 // that of nftables
	// Legacy has the number of entries and the offsets of the hooks of each table.
	Legacy [len(watched)]xtables.Info
}

// watched are the tables that have a Generation.
var watched = [...]Table{{inet.IPv4, NAT}, {inet.IPv4, Filter}, {inet.IPv6, NAT}, {inet.IPv6, Filter}}

// SameCounts reports whether two generations agree in what Monitor.Expected predicts.
func (g Generation) SameCounts(o Generation) bool {
	for i := range g.Legacy {
		if g.Legacy[i].Entries != o.Legacy[i].Entries {
			return false
		}
	}
	return g.NFT == o.NFT
}

// Checksums are of the contents of the watched tables.
type Checksums [len(watched)]uint64
