//go:build linux

package nftables

import (
	"context"
	"maps"
	"slices"
	"time"

	"sluice/internal/kernel/nft"
)

// directWriter writes what changed. What is large is written in several transactions, in an order in which nothing
// leads to what is not there.
type directWriter struct {
	d *directState
	*nft.Batch
	ingress *mirror
	// paths says that it may have changed which nodes packets are handed to.
	paths bool
	now   time.Time
}

// maxDirectBytes is the limit for a transaction, beside that of elements.
const maxDirectBytes = 4 << 20

// room commits what there is, if it is much.
func (w *directWriter) room(ctx context.Context) error {
	if w.Elements() <= w.d.bound/2 && w.Len() <= maxDirectBytes {
		return nil
	}
	err := w.d.commit(ctx, w.Batch)
	w.Batch = &nft.Batch{}
	return err
}

// write writes the pools of a family that may have changed, and what several of them have together.
func (w *directWriter) write(ctx context.Context, f *directFamily, dirty map[affinityID]struct{}) error {
	f.directCache = directCache{map[string]*directLookup{}, map[*directLookup]*slotTable{}, map[move]formerly{}}
	for id, p := range f.pools {
		if _, is := dirty[id]; len(p.frontends) == 0 || !is && !w.paths && !p.handover.forgets(w.now) {
			continue
		}
		if f.retarget(p, w.d.settings.Node, w.now) {
			dirty[id] = struct{}{}
		}
	}
	f.directCache = directCache{}
	if err := w.writeShared(ctx, f); err != nil {
		return err
	}
	var live, gone []*directPool
	for _, id := range slices.Sorted(maps.Keys(dirty)) {
		if p := f.pools[id]; len(p.frontends) > 0 {
			live = append(live, p)
		} else {
			gone = append(gone, p)
		}
	}
	if err := w.writePools(ctx, f, live, gone); err != nil {
		return err
	}
	return w.removeUnused(ctx, f)
}

// writeShared writes tables and handovers.
func (w *directWriter) writeShared(ctx context.Context, f *directFamily) error {
	for _, id := range slices.Sorted(maps.Keys(f.tables)) {
		if t := f.tables[id]; t.users > 0 && (w.paths || t.handed == nil) {
			t.write(w.Batch, f, w.ingress)
			if err := w.room(ctx); err != nil {
				return err
			}
		}
	}
	for _, r := range f.sortedHandovers() {
		if r.users > 0 && (w.paths || r.idle || !r.there) {
			r.write(w.Batch, f, w.ingress, w.d.settings.Index)
			if err := w.room(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// sortedHandovers returns the handovers by their names.
func (f *directFamily) sortedHandovers() []*handover {
	byName := map[string]*handover{}
	for key, r := range f.handovers {
		byName[key.name()] = r
	}
	out := make([]*handover, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

// writePools writes pools, and removes those that are gone.
func (w *directWriter) writePools(ctx context.Context, f *directFamily, live, gone []*directPool) error {
	want := make([]*poolProgram, len(live))
	for i, p := range live {
		want[i] = p.want(f, w.d)
		p.mislead(w.Batch, f, w.ingress, want[i].elements)
	}
	for _, p := range gone {
		p.mislead(w.Batch, f, w.ingress, nil)
	}
	for i, p := range live {
		p.write(w.Batch, f, w.ingress, want[i])
		if err := w.room(ctx); err != nil {
			return err
		}
	}
	if f.read != nil {
		f.read = nil
		w.sweep(f)
	}
	for _, p := range gone {
		p.unserve(w.Batch, f)
		if p.handover != nil {
			p.handover.users--
		}
		delete(f.pools, p.id)
		if err := w.room(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leading are the sets whose elements lead to pools.
func (w *directWriter) leading(f *directFamily) map[directElement]*mirror {
	out := map[directElement]*mirror{}
	for _, set := range []string{ingressFrontends(f.family), ingressErrors(f.family)} {
		out[directElement{ingress: true, set: set}] = w.ingress
	}
	for _, set := range []string{second, secondPorts, received, recvPorts} {
		out[directElement{set: set}] = f.mirror
	}
	return out
}

// sweep removes elements that an earlier process left and that no pool has.
func (w *directWriter) sweep(f *directFamily) {
	wanted := map[directElement]struct{}{}
	for _, p := range f.pools {
		for e := range p.elements {
			wanted[e] = struct{}{}
		}
	}
	for e, m := range w.leading(f) {
		for key := range m.sets[e.set] {
			if e.key = key; !contains(wanted, e) {
				m.drop(w.Batch, e.set, key)
			}
		}
	}
}

func contains[K comparable](set map[K]struct{}, key K) bool {
	_, is := set[key]
	return is
}

// removeUnused removes handovers that nobody has used since the last time, when their packets were not counted yet, and
// tables that nobody uses.
func (w *directWriter) removeUnused(ctx context.Context, f *directFamily) error {
	for _, r := range f.sortedHandovers() {
		switch {
		case r.users > 0:
			r.idle = false
		case !r.idle && r.there:
			r.idle = true
		default:
			r.remove(w.Batch, f, w.ingress)
			r.table.users--
			delete(f.handovers, r.handoverKey)
			if err := w.room(ctx); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.tables)) {
		if t := f.tables[id]; t.users == 0 {
			t.remove(w.Batch, f, w.ingress)
			delete(f.tables, id)
			if err := w.room(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
