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
	ids, err := d.adoptSets(ctx)
	if err != nil {
		return err
	}
	for _, f := range d.families {
		f.adoptNodes()
		for _, id := range ids[f] {
			if err := d.adoptPool(ctx, f, id); err != nil {
				return err
			}
		}
		if err := d.adoptElements(f); err != nil {
			return err
		}
	}
	for _, m := range d.mirrors() {
		if m.chains, err = d.readChains(ctx, m); err != nil {
			return err
		}
		m.exists = true
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

// adoptSets checks the sets, and returns the pools that there are.
func (d *directState) adoptSets(ctx context.Context) (map[*directFamily][]affinityID, error) {
	ingress, err := d.setsOf(ctx, d.ingress, ingressSets())
	if err != nil {
		return nil, err
	}
	ids := map[*directFamily][]affinityID{}
	for _, f := range d.families {
		own, err := d.setsOf(ctx, f.mirror, f.sharedSets())
		if err != nil {
			return nil, err
		}
		for name := range own {
			hex, is := strings.CutPrefix(name, slotsPrefix)
			if !is {
				continue
			}
			n, err := strconv.ParseUint(hex, 16, 64)
			sets := f.poolSets(affinityID(n))
			at, there := ingress[name]
			if err != nil || !there || !sets[0].Matches(at) || !allMatch(sets, own) {
				return nil, errForeign
			}
			ids[f] = append(ids[f], affinityID(n))
		}
	}
	return ids, nil
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

// adoptPool reads what the kernel has of a pool. Slots that are neither this node's nor handed to another one
// are of a node that is not known.
func (d *directState) adoptPool(ctx context.Context, f *directFamily, id affinityID) error {
	p := &directPool{id: id, frontends: map[plan.Key]*plan.Frontend{}, slots: make([]nodeNumber, plan.DirectSlots),
		former: make([]candidates, plan.DirectSlots), moved: d.clock(), now: newDirectProgram()}
	ingress := make([]nodeNumber, plan.DirectSlots)
	for _, r := range []struct {
		table nft.Table
		set   string
		into  []nodeNumber
	}{
		{d.ingress.Table, slotsOf(id), ingress}, {f.Table, slotsOf(id), p.now.handed},
		{f.Table, askedOf(id, 0), p.now.asked[0]}, {f.Table, askedOf(id, 1), p.now.asked[1]}, {f.Table, askedOf(id, 2), p.now.asked[2]},
	} {
		err := d.eachSlot(ctx, f, r.table, r.set, plan.DirectSlots, func(slot int, value *decoder) {
			r.into[slot] = f.numberOf(value.Addr())
		})
		if err != nil {
			return err
		}
	}
	if !slices.Equal(ingress, p.now.handed) {
		return errForeign
	}
	err := d.eachSlot(ctx, f, f.Table, ownOf(id), plan.DirectSlots, func(slot int, _ *decoder) { p.now.own[slot] = true })
	if err != nil {
		return err
	}
	err = d.eachSlot(ctx, f, f.Table, localOf(id), 1<<20, func(slot int, value *decoder) {
		for len(p.now.local) <= slot {
			p.now.local = append(p.now.local, netip.AddrPort{})
		}
		p.now.local[slot] = value.endpoint()
	})
	if err != nil {
		return err
	}
	for i := range p.slots {
		for c := range p.now.asked {
			if n := p.now.asked[c][i]; n != p.now.handed[i] || n == thisNode {
				p.former[i][c] = n
			}
		}
		switch {
		case p.now.own[i]:
		case p.now.handed[i] != thisNode:
			p.slots[i] = p.now.handed[i]
		case p.former[i][0] != thisNode: // packets are not handed to it, but it is asked
			p.slots[i] = p.former[i][0]
		default:
			p.slots[i] = unknownNode
		}
	}
	f.pools[id] = p
	return nil
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

// adoptElements finds which elements lead to which pool.
func (d *directState) adoptElements(f *directFamily) error {
	for _, sets := range []struct {
		ingress bool
		of      *mirror
		names   []string
	}{
		{true, d.ingress, []string{ingressFrontends(f.family), ingressErrors(f.family)}},
		{false, f.mirror, []string{second, secondPorts, received, recvPorts}},
	} {
		for _, name := range sets.names {
			for key, chain := range sets.of.sets[name] {
				_, hex, _ := strings.Cut(chain, "-")
				n, err := strconv.ParseUint(hex, 16, 64)
				p := f.pools[affinityID(n)]
				if err != nil || p == nil {
					return errForeign
				}
				p.now.elements[directElement{sets.ingress, name, key}] = chain
			}
		}
	}
	return nil
}

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
