//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// errForeign says that the tables are not as a process of this version leaves them.
var errForeign = errors.New("not as it was written")

// read finds out what an earlier process left. Tables that are not as expected are removed: until they
// are made anew packets take the ordinary path.
func (d *directState) read(ctx context.Context) error {
	err := d.adopt(ctx)
	if errors.Is(err, errForeign) {
		_, err = removeTables(ctx, d.conn.Conn, []string{d.name}, directFamilies...)
		d.reset()
		d.resumes = true
	}
	return err
}

func (d *directState) adopt(ctx context.Context) error {
	var there []nft.Family
	for _, f := range directFamilies {
		names, err := d.conn.TableNames(ctx, f)
		if err != nil {
			return err
		}
		if slices.Contains(names, d.name) {
			there = append(there, f)
		}
	}
	switch wanted := d.mirrors(); {
	case len(there) == 0:
		return nil
	case !slices.EqualFunc(there, wanted, func(f nft.Family, m *mirror) bool { return f == m.Family }):
		return errForeign
	}
	for _, m := range d.mirrors() {
		var err error
		if m.chains, err = d.readChains(ctx, m); err != nil {
			return err
		}
		m.exists = true
	}
	ingress, err := d.setsOf(ctx, d.ingress, ingressSets())
	if err != nil {
		return err
	}
	for _, f := range d.families {
		sets, err := d.setsOf(ctx, f.mirror, f.sharedSets())
		if err != nil {
			return err
		}
		f.adoptNodes()
		f.read = map[string]*handover{}
		if err := d.adoptSets(ctx, f, ingress, sets); err != nil {
			return err
		}
	}
	return nil
}

func (d *directState) mirrors() []*mirror {
	all := []*mirror{d.ingress}
	for _, f := range model.Families {
		if of := d.families[f]; of != nil {
			all = append(all, of.mirror)
		}
	}
	return all
}

// readChains returns the chains of a table with the tags of their rules. A base chain of a device that is gone
// counts for nothing.
func (d *directState) readChains(ctx context.Context, m *mirror) (map[string][]uint64, error) {
	chains, err := d.conn.Chains(ctx, m.Table)
	if err != nil {
		return nil, err
	}
	rules, err := d.conn.Rules(ctx, m.Table)
	if err != nil {
		return nil, err
	}
	all := map[string][]uint64{}
	for _, c := range chains {
		if all[c.Name] = []uint64{}; m == d.ingress && c.Type != "" && c.Name != ingressBase(c.Device) {
			return nil, fmt.Errorf("the chain %s: %w", c.Name, errForeign)
		}
	}
	for _, r := range rules {
		all[r.Chain] = append(all[r.Chain], r.Tag)
	}
	return all, nil
}

// adoptSets reads the tables, handovers and pools of a family. It is known later which pools have which handover.
func (d *directState) adoptSets(ctx context.Context, f *directFamily, ingress, sets map[string]nft.SetInfo) error {
	asked := 0
	for name := range sets {
		var err error
		hex, isTable := strings.CutPrefix(name, slotsPrefix)
		pool, isPool := strings.CutPrefix(name, localPrefix)
		switch {
		case isTable:
			err = d.adoptTable(ctx, f, hex, ingress, sets)
		case isPool:
			err = d.adoptPool(ctx, f, pool, sets)
		case strings.HasPrefix(name, askedPrefix):
			asked++
		}
		if err != nil {
			return err
		}
	}
	for chain := range f.mirror.chains {
		name, is := strings.CutPrefix(chain, secondPrefix)
		if !is || chain == secondChance {
			continue
		}
		r, err := d.adoptHandover(ctx, f, name, sets)
		if err != nil {
			return err
		}
		asked -= len(r.asked)
	}
	if asked != 0 {
		return errForeign
	}
	return nil
}

// setsOf returns the sets of a table, which must have the wanted ones.
func (d *directState) setsOf(ctx context.Context, m *mirror, wanted []*nft.Set) (map[string]nft.SetInfo, error) {
	list, err := d.conn.Sets(ctx, m.Table)
	if err != nil {
		return nil, err
	}
	sets := map[string]nft.SetInfo{}
	for _, s := range list {
		sets[s.Name] = s
	}
	if !allMatch(wanted, sets) {
		return nil, errForeign
	}
	for _, s := range wanted {
		if m.sets[s.Name] = map[string]string{}; s.Dynamic {
			continue
		}
		err := d.conn.Elements(ctx, m.Table, s.Name, func(e *nft.Element) error {
			value := string(e.Data)
			if e.Verdict != nil {
				value = e.Verdict.Chain
			}
			m.sets[s.Name][string(e.Key)] = value
			return nil
		})
		if err != nil && !errors.Is(err, nft.ErrInterrupted) {
			return nil, err
		}
	}
	return sets, nil
}

func allMatch(wanted []*nft.Set, sets map[string]nft.SetInfo) bool {
	for _, s := range wanted {
		if at, there := sets[s.Name]; !there || !s.Matches(at) {
			return false
		}
	}
	return true
}

// adoptNodes numbers the nodes that the maps may name.
func (f *directFamily) adoptNodes() {
	for _, addr := range f.mirror.sets[peerAddrs] {
		if ip, ok := netip.AddrFromSlice([]byte(addr)); ok {
			f.numberOf(ip)
		}
	}
}

// adoptTable reads a table. Slots that are neither this node's nor handed to another one are of a node that is not
// known.
func (d *directState) adoptTable(
	ctx context.Context, f *directFamily, hex string, ingress, sets map[string]nft.SetInfo,
) error {
	id, err := strconv.ParseUint(hex, 16, 64)
	t := &slotTable{id: affinityID(id), slots: make([]nodeNumber, plan.DirectSlots),
		handed: make([]nodeNumber, plan.DirectSlots), own: make([]bool, plan.DirectSlots)}
	if own := t.sets(f.layout); err != nil || !allMatch(own, sets) || !allMatch(own[:1], ingress) {
		return errForeign
	}
	same := make([]nodeNumber, plan.DirectSlots)
	if err := d.readNodes(ctx, f, d.ingress.Table, slotsOf(t.id), same); err != nil {
		return err
	}
	if err := d.readNodes(ctx, f, f.Table, slotsOf(t.id), t.handed); err != nil {
		return err
	}
	if !slices.Equal(same, t.handed) {
		return errForeign
	}
	err = d.eachSlot(ctx, f, f.Table, ownOf(t.id), plan.DirectSlots, func(slot int, _ *decoder) { t.own[slot] = true })
	for i, n := range t.handed {
		switch {
		case t.own[i]:
		case n != thisNode:
			t.slots[i] = n
		default:
			t.slots[i] = unknownNode
		}
	}
	f.tables[t.id] = t
	return err
}

// adoptHandover reads a handover.
func (d *directState) adoptHandover(
	ctx context.Context, f *directFamily, name string, sets map[string]nft.SetInfo,
) (*handover, error) {
	key, ok := f.parseHandover(name)
	if !ok {
		return nil, errForeign
	}
	r := &handover{handoverKey: key, there: true, moved: d.clock()}
	for c := range len(candidates{}) {
		set, there := sets[askedOf(name, c)]
		if !there {
			break
		}
		if !r.askedSet(f.layout, c).Matches(set) {
			return nil, errForeign
		}
		r.asked = append(r.asked, make([]nodeNumber, plan.DirectSlots))
		if err := d.readNodes(ctx, f, f.Table, set.Name, r.asked[c]); err != nil {
			return nil, err
		}
	}
	if key.former != 0 {
		r.formerly = make([]candidates, plan.DirectSlots)
	}
	for c, nodes := range r.asked {
		for i, n := range nodes {
			if r.formerly != nil && n != key.table.handed[i] {
				r.formerly[i][c] = n
			}
		}
	}
	f.handovers[key], f.read[secondOf(name)] = r, r
	key.table.users++
	return r, nil
}

// adoptPool reads which endpoints connections of a pool are led to here.
func (d *directState) adoptPool(ctx context.Context, f *directFamily, hex string, sets map[string]nft.SetInfo) error {
	id, err := strconv.ParseUint(hex, 16, 64)
	p := &directPool{id: affinityID(id), frontends: map[plan.Key]*plan.Frontend{}, served: true}
	if err != nil || !f.localSet(p.id).Matches(sets[localOf(p.id)]) {
		return errForeign
	}
	f.pools[p.id] = p
	return d.eachSlot(ctx, f, f.Table, localOf(p.id), 1<<20, func(slot int, value *decoder) {
		for len(p.local) <= slot {
			p.local = append(p.local, netip.AddrPort{})
		}
		p.local[slot] = value.endpoint()
	})
}

// adopt finds the handover that a pool had by the elements of one of its frontends. Packets of such a pool are handed on.
func (f *directFamily) adopt(p *directPool, k plan.Key) {
	if f.read == nil {
		return
	}
	var a arena
	set := second
	if k.NodePort() {
		set = secondPorts
	}
	if r := f.read[f.mirror.sets[set][string(a.frontendKey(k))]]; r != nil && r.protocol == p.protocol {
		p.handover, p.begins = r, time.Time{}
		r.users++
	}
}

// readNodes reads a map of nodes.
func (d *directState) readNodes(
	ctx context.Context, f *directFamily, t nft.Table, set string, into []nodeNumber,
) error {
	return d.eachSlot(ctx, f, t, set, len(into), func(slot int, value *decoder) { into[slot] = f.numberOf(value.Addr()) })
}

func (d *directState) eachSlot(
	ctx context.Context, f *directFamily, t nft.Table, set string, slots int, each func(int, *decoder),
) error {
	err := d.conn.Elements(ctx, t, set, func(e *nft.Element) error {
		key := f.decode(e.Key)
		slot := key.index()
		if !key.Done() || slot >= slots {
			return errForeign
		}
		each(slot, f.decode(e.Data))
		return nil
	})
	if errors.Is(err, nft.ErrInterrupted) {
		return fmt.Errorf("%s: %w", set, errInterrupted)
	}
	return err
}

// errInterrupted has the tables read again soon.
var errInterrupted = errors.New("the rules changed while they were read")

// mend finds out whether another program has changed the tables, if any changed something.
func (d *directState) mend(ctx context.Context) error {
	if !d.known || d.absent {
		return nil
	}
	generation, err := d.conn.Generation(ctx)
	if err != nil || generation == d.generation {
		return err
	}
	for _, m := range d.mirrors() {
		chains, err := d.readChains(ctx, m)
		same := err == nil
		for name, tags := range m.chains {
			is, there := chains[name]
			same = same && there && slices.Equal(is, tags)
		}
		for set, elements := range m.sets {
			if same && len(elements) > 0 {
				same, err = d.sampled(ctx, m, set, elements)
			}
		}
		switch {
		case errors.Is(err, errForeign), errors.Is(err, unix.ENOENT), err == nil && !same:
			d.known, d.resumes = false, true
			return nil
		case err != nil && !errors.Is(err, nft.ErrInterrupted):
			return err
		}
	}
	d.generation = generation
	return nil
}

// sampled reports whether some elements of a set are there, all of them if they are few.
func (d *directState) sampled(ctx context.Context, m *mirror, set string, elements map[string]string) (bool, error) {
	var keys []nft.Element
	for key := range elements { // in another order each time
		if keys = append(keys, nft.Element{Key: []byte(key)}); len(keys) == looked {
			break
		}
	}
	same := true
	err := d.conn.Lookup(ctx, m.Table, set, keys, func(_ int, e *nft.Element) error {
		same = same && e != nil
		return nil
	})
	return same, err
}
