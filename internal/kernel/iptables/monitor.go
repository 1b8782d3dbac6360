package iptables

import (
	"context"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
)

// Monitor detects writes of other programs without listing tables.
type Monitor interface {
	Generation(context.Context) (Generation, error)
	// Expected predicts the generation after an input that adds entries to a table,
	// if no other program writes.
	Expected(before Generation, t Table, entries int) Generation
	// Checksums show what generations miss, at the cost of reading everything; nil
	// if generations miss nothing.
	Checksums(context.Context) (*Checksums, error)
	// Dormant returns the tables that packets bypass, and Wake enables them again.
	Dormant(context.Context) ([]nft.Table, error)
	Wake(context.Context, []nft.Table) error
	// Listen starts and stops to receive the kernel's notifications of writes.
	Listen(context.Context, bool) error
	// Judge says what the writes between two generations did, from notifications.
	Judge(from, to Generation) Verdict
	Close() error
}

// Verdict is a judgement of other programs' writes.
type Verdict int

// The verdicts.
const (
	Unknown  Verdict = iota // anything may have happened
	Harmless                // they did not touch our chains
	Harmful                 // they may have
)

// NewMonitor opens a Monitor of a variant in a network namespace; 0 is the
// caller's. Writes matter if they touch chains that are ours, or built-in ones.
func NewMonitor(v Variant, netns int, families []inet.Family, ours func(chain string) bool) (Monitor, error) {
	if v == NFT {
		return newNFTMonitor(netns, ours)
	}
	return newLegacyMonitor(netns, families)
}

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
