package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/nft"
	"sluice/internal/plan"
)

// forgetClients makes clients forget endpoints that left a frontend with
// session affinity.
func (d *Dataplane) forgetClients(ctx context.Context, items []*item) error {
	var tables []*table
	for _, it := range items {
		if it.old != nil && it.old.Affinity > 0 && it.losesEndpoint() && !slices.Contains(tables, it.table) {
			tables = append(tables, it.table)
		}
	}
	for _, t := range tables {
		if err := d.sweepAffinity(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// losesEndpoint tells whether somebody may remember an endpoint that is gone.
func (it *item) losesEndpoint() bool {
	if it.new == nil || it.new.Affinity == 0 {
		return true
	}
	gone := func(old, new []netip.AddrPort) bool {
		in := make(map[netip.AddrPort]struct{}, len(new))
		for _, ep := range new {
			in[ep] = struct{}{}
		}
		return slices.ContainsFunc(old, func(ep netip.AddrPort) bool { _, ok := in[ep]; return !ok })
	}
	return gone(it.old.slots, it.new.slots) || gone(it.old.outsideSlots, it.new.outsideSlots)
}

// sweepAffinity removes what the packet path remembered and is no longer true.
// It runs after the change took effect, so that nothing stale comes after it.
func (d *Dataplane) sweepAffinity(ctx context.Context, t *table) error {
	for _, set := range []string{affinity, localAffinity} {
		stale, err := d.staleClients(ctx, t, set)
		if err != nil {
			return err
		}
		for len(stale) > 0 {
			n := min(len(stale), batchElements)
			if err := d.deleteClients(ctx, t, set, stale[:n]); err != nil {
				return fmt.Errorf("forgetting clients of endpoints that left: %w", err)
			}
			stale = stale[n:]
		}
	}
	return nil
}

func (d *Dataplane) staleClients(ctx context.Context, t *table, set string) ([]nft.Element, error) {
	var stale []nft.Element
	members := map[plan.Key]map[netip.AddrPort]struct{}{}
	read := func(e *nft.Element) error {
		k := t.decode(e.Key)
		k.addr() // the client
		key := k.frontend(false)
		v := t.decode(e.Data)
		ep := v.endpoint()
		if _, ok := t.poolOf(key, set, members)[ep]; !ok || !k.done() || !v.done() {
			stale = append(stale, nft.Element{Key: slices.Clone(e.Key)})
		}
		return nil
	}
	for {
		stale = nil
		err := d.writer.Elements(ctx, t.Table, set, read)
		if !errors.Is(err, nft.ErrInterrupted) {
			return stale, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// poolOf is the pool that clients of an address and port are remembered for,
// empty if there is none with affinity.
func (t *table) poolOf(k plan.Key, set string, known map[plan.Key]map[netip.AddrPort]struct{}) map[netip.AddrPort]struct{} {
	pool, ok := known[k]
	if ok {
		return pool
	}
	pool = map[netip.AddrPort]struct{}{}
	known[k] = pool
	f := t.frontends[k]
	if f == nil {
		if t.nodePortIPs.has(k.Addr) {
			f = t.frontends[plan.Key{Addr: unspecified(t.family), Port: k.Port, Protocol: k.Protocol}]
		}
	}
	if f == nil || f.Affinity == 0 {
		return pool
	}
	slots := f.slots
	if set == localAffinity {
		slots = f.outsideSlots
	}
	for _, ep := range slots {
		pool[ep] = struct{}{}
	}
	return pool
}

// deleteClients removes elements that can expire at any moment: those that did
// are left out, and the others tried again.
func (d *Dataplane) deleteClients(ctx context.Context, t *table, set string, stale []nft.Element) error {
	for isolate := false; len(stale) > 0; isolate = true {
		b := &nft.Batch{Isolate: isolate}
		for i := range stale {
			b.DeleteElement(t.Table, set, &stale[i], nft.Owner(i+1))
		}
		err := d.commit(ctx, b)
		var refused *nft.Refused
		if err == nil || !errors.As(err, &refused) || refused.Err != nil {
			return err
		}
		if !isolate {
			continue
		}
		expired := map[int]bool{}
		for _, m := range refused.Messages {
			if !errors.Is(m.Err, unix.ENOENT) {
				return err
			}
			expired[int(m.Owner)-1] = true
		}
		var rest []nft.Element
		for i := range stale {
			if !expired[i] {
				rest = append(rest, stale[i])
			}
		}
		stale = rest
	}
	return nil
}
