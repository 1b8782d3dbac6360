//go:build linux

package iptables

import (
	"context"
	"errors"
	"hash/maphash"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns"
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

// legacyMonitor reads the state of legacy tables from the kernel, through a socket
// of each family.
type legacyMonitor struct {
	sockets map[inet.Family]*xtables.Socket
	seed    maphash.Seed
}

func newLegacyMonitor(ns int, families []inet.Family) (*legacyMonitor, error) {
	m := &legacyMonitor{sockets: map[inet.Family]*xtables.Socket{}, seed: maphash.MakeSeed()}
	return m, netns.Do(ns, func() error {
		for _, f := range families {
			socket, err := LegacyFamily(f).Open()
			if err != nil {
				return errors.Join(err, m.Close())
			}
			m.sockets[f] = socket
		}
		return nil
	})
}

func (m *legacyMonitor) Close() error {
	var errs []error
	for _, socket := range m.sockets {
		errs = append(errs, socket.Close())
	}
	return errors.Join(errs...)
}

// eachTable calls f with the watched tables, up to an error.
func (m *legacyMonitor) eachTable(f func(i int, socket *xtables.Socket, table string) error) error {
	for i, t := range watched {
		if socket := m.sockets[t.Family]; socket != nil {
			if err := f(i, socket, t.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *legacyMonitor) Generation(context.Context) (Generation, error) {
	var out Generation
	err := m.eachTable(func(i int, socket *xtables.Socket, table string) (err error) {
		out.Legacy[i], err = socket.Info(table)
		return err
	})
	return out, err
}

// Checksums show renamed chains and rules that were replaced by others of the same
// length, which a Generation misses.
func (m *legacyMonitor) Checksums(context.Context) (*Checksums, error) {
	out := &Checksums{}
	return out, m.eachTable(func(i int, socket *xtables.Socket, table string) (err error) {
		out[i], err = socket.Checksum(table, m.seed)
		return err
	})
}

// Legacy iptables has no notifications, and no dormant tables.
func (m *legacyMonitor) Listen(context.Context, bool) error           { return nil }
func (m *legacyMonitor) Judge(Generation, Generation) Verdict         { return Unknown }
func (m *legacyMonitor) Dormant(context.Context) ([]nft.Table, error) { return nil, nil }
func (m *legacyMonitor) Wake(context.Context, []nft.Table) error      { return nil }

// Expected predicts the number of entries only.
func (m *legacyMonitor) Expected(before Generation, t Table, entries int) Generation {
	for i, w := range watched {
		if w == t {
			before.Legacy[i].Entries += uint32(entries)
		}
	}
	return before
}
