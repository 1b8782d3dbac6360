//go:build linux

package nftables

import (
	"context"
	"fmt"
	"slices"

	"sluice/internal/kernel/nft"
)

// replaces reports whether a table is about to replace others.
func (c *commit) replaces() bool {
	return slices.ContainsFunc(c.tables, func(t *table) bool { return len(t.predecessors) > 0 })
}

// inheritClients copies the clients that are remembered in tables that others replace, just before that happens.
// The maps of clients are the same in tables of many layouts.
func (c *commit) inheritClients(ctx context.Context) {
	for _, t := range c.tables {
		for _, old := range t.predecessors {
			if err := c.d.inheritClients(ctx, t, old); err != nil {
				c.d.logger.Info("Clients with session affinity may get another endpoint", "reason", err.Error())
			}
		}
	}
}

// inheritClients copies the clients in the maps that both tables have.
func (d *Dataplane) inheritClients(ctx context.Context, t *table, old nft.Table) error {
	sets, err := d.writer.Sets(ctx, old)
	if err != nil {
		return err
	}
	for _, m := range t.clientMaps() {
		like := t.clientMap(m.name())
		if !slices.ContainsFunc(sets, func(i nft.SetInfo) bool { return i.Name == like.Name && like.Matches(i) }) {
			continue
		}
		of, err := t.readClients(ctx, d.writer, old, m)
		if err != nil {
			return err
		}
		var clients []nft.Element
		for at, some := range of {
			if at != (affineEndpoint{}) {
				clients = append(clients, slices.DeleteFunc(some, func(e nft.Element) bool { return e.Expires <= 0 })...)
			}
		}
		err = d.writeClients(ctx, clients, func(b *nft.Batch, e *nft.Element, o nft.Owner) {
			b.AddElement(t.Table, m.name(), e, o)
		})
		if err != nil {
			return fmt.Errorf("copying the clients in %s: %w", m.name(), err)
		}
	}
	return nil
}
