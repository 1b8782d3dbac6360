package nftables

import (
	"context"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// eachElement reads elements of sets whose keys are frontends.
func (t *table) eachElement(ctx context.Context, c *nft.Conn, sets []string, f func(plan.Key, *nft.Element)) error {
	for _, set := range sets {
		err := c.Elements(ctx, t.Table, set, func(e *nft.Element) error {
			d := t.decode(e.Key)
			if k := d.frontend(set == nodePorts || set == nodePortOutside); d.Done() {
				f(k, e)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// singleReads is up to how many counters are read one by one, and not by a dump.
const singleReads = 64

// carryCounters reads the counters of elements that are to be replaced or to change
// their meaning, so that new verdicts continue from there and carryTraffic keeps the
// rest. The few connections between reading and writing are not counted.
func (d *Dataplane) carryCounters(ctx context.Context, items []*item) error {
	var replaced []*item
	for _, it := range items {
		if it.now != nil && it.new != nil && it.now.verdict != "" && it.now.leadsElsewhere(&it.new.programmed) {
			now := *it.now // the original belongs to the mirror, which others read
			it.now = &now
			replaced = append(replaced, it)
		}
	}
	if len(replaced) <= singleReads {
		return d.readCounters(ctx, replaced)
	}
	byTable := map[*table]map[plan.Key]*programmed{}
	for _, it := range replaced {
		if byTable[it.table] == nil {
			byTable[it.table] = map[plan.Key]*programmed{}
		}
		byTable[it.table][it.key] = it.now
	}
	for t, byKey := range byTable {
		if err := dumpCounters(ctx, d.writer, t, byKey); err != nil {
			return err
		}
	}
	return nil
}

// leadsElsewhere reports whether elements with counters differ.
func (p *programmed) leadsElsewhere(o *programmed) bool {
	return p.verdict != o.verdict || p.outside != o.outside || p.filters != o.filters
}

func dumpCounters(ctx context.Context, c *nft.Conn, t *table, of map[plan.Key]*programmed) error {
	into := func(sets []string, take func(*programmed, *nft.Element)) error {
		return t.eachElement(ctx, c, sets, func(k plan.Key, e *nft.Element) {
			if p := of[k]; p != nil {
				take(p, e)
			}
		})
	}
	err := into([]string{services, nodePorts}, func(p *programmed, e *nft.Element) { p.packets, p.bytes = e.Packets, e.Bytes })
	if err == nil {
		err = into([]string{outside, nodePortOutside}, func(p *programmed, e *nft.Element) { p.outsidePackets = e.Packets })
	}
	if err == nil {
		err = into([]string{filters}, func(p *programmed, e *nft.Element) { p.filteredPackets = e.Packets })
	}
	return err
}

func (d *Dataplane) readCounters(ctx context.Context, items []*item) error {
	var a arena
	for _, it := range items {
		key, m, now := a.frontendKey(it.key), mapsOf(it.key), it.now
		read := func(set string, there bool) (e nft.Element, err error) {
			if e.Key = key; there {
				err = d.writer.Element(ctx, it.table.Table, set, &e)
			}
			return e, err
		}
		verdict, err := read(m.verdict, true)
		if err != nil {
			return err
		}
		fromOutside, err := read(m.outside, now.outside != "")
		if err != nil {
			return err
		}
		filtered, err := read(filters, now.filters)
		if err != nil {
			return err
		}
		now.packets, now.bytes = verdict.Packets, verdict.Bytes
		now.outsidePackets, now.filteredPackets = fromOutside.Packets, filtered.Packets
	}
	return nil
}
