//go:build linux

package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// eachElement reads elements of sets whose keys are frontends.
func (t *table) eachElement(ctx context.Context, c *nft.Conn, sets []string, f func(plan.Key, *nft.Element)) error {
	for _, set := range sets {
		err := c.Elements(ctx, t.Table, set, func(e *nft.Element) error {
			d := t.decode(e.Key)
			if k := d.frontend(frontendSets[set]); d.Done() {
				f(k, e)
			}
			return nil
		})
		if errors.Is(err, unix.ENOENT) && frontendSets[set] == byRange { // there are none
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// carryCounters reads the counters of elements that are to be replaced or to change
// their meaning, so that new verdicts continue from there and carryTraffic keeps the
// rest. The few connections between reading and writing are not counted.
func (d *Dataplane) carryCounters(ctx context.Context, items []*item) error {
	if d.uncounted {
		return nil
	}
	type place struct {
		table nft.Table
		set   string
	}
	keys, owners := map[place][]nft.Element{}, map[place][]*programmed{}
	var a arena
	for _, it := range items {
		if it.now == nil || it.new == nil || it.now.verdict == "" || !it.now.targetsDiffer(&it.new.programmed) {
			continue
		}
		now := *it.now // the original belongs to the mirror, which others read
		it.now = &now
		read := func(set string, key []byte) {
			at := place{it.table.Table, set}
			keys[at], owners[at] = append(keys[at], nft.Element{Key: key}), append(owners[at], &now)
		}
		m := mapsOf(it.key)
		if it.key.IsRange() {
			now.packets, now.bytes, now.outsidePackets = 0, 0, 0
			now.eachBlock(&a, it.key, read)
		} else {
			read(m.verdict, a.frontendKey(it.key))
			if now.outside != "" {
				read(m.outside, a.frontendKey(it.key))
			}
		}
		if now.filters {
			read(m.filters, a.filterKey(it.key))
		}
	}
	for at, keys := range keys {
		err := d.writer.Lookup(ctx, at.table, at.set, keys, func(i int, e *nft.Element) error {
			if e != nil {
				owners[at][i].takeCounter(at.set, e)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// takeCounter takes the counter of one of the frontend's elements.
func (p *programmed) takeCounter(set string, e *nft.Element) {
	switch set {
	case services, nodePorts:
		p.packets, p.bytes = e.Packets, e.Bytes
	case outside, nodePortOutside:
		p.outsidePackets = e.Packets
	case filters, rangeFilters:
		p.filteredPackets = e.Packets
	default:
		p.takeBlockCounter(blockMapsByName[set].outside, e)
	}
}

// targetsDiffer reports whether elements with counters differ.
func (p *programmed) targetsDiffer(o *programmed) bool {
	return p.verdict != o.verdict || p.outside != o.outside || p.filters != o.filters
}
