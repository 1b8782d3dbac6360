package iptables

import (
	"sluice/internal/kernel/xtables"
	"sluice/internal/model"
)

// Generation identifies the state of the tables nat and filter, as far as that shows
// without listing them. It differs after most writes.
type Generation struct {
	NFT uint32 // that of nftables
	// Legacy has the number of entries and the offsets of the hooks of each table.
	Legacy [len(watched)]xtables.Info
}

// watched are the tables that have a Generation.
var watched = [...]Table{{model.IPv4, NAT}, {model.IPv4, Filter}, {model.IPv6, NAT}, {model.IPv6, Filter}}

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
