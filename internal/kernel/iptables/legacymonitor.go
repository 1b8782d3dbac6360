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
