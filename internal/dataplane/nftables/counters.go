package nftables

import (
	"context"

	"sluice/internal/nft"
	"sluice/internal/plan"
)

// Counters reads how many connections each frontend has seen.
func (d *Dataplane) Counters(ctx context.Context) (map[plan.Key]uint64, error) {
	d.mu.Lock()
	tables := d.tables
	d.mu.Unlock()
	counts := map[plan.Key]uint64{}
	for _, t := range tables {
		err := eachCounter(ctx, d.reader, t, func(k plan.Key, e *nft.Element) { counts[k] = e.Packets })
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func eachCounter(ctx context.Context, c *nft.Conn, t *table, f func(plan.Key, *nft.Element)) error {
	for _, set := range []string{services, nodePorts} {
		err := c.Elements(ctx, t.Table, set, func(e *nft.Element) error {
			d := t.decode(e.Key)
			if k := d.frontend(set == nodePorts); d.done() {
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

// singleReads is up to how many counters are read one by one instead of by a
// dump of them all.
const singleReads = 64

// carryCounters reads the counters of the verdicts that are about to be
// replaced, so that the new elements go on counting from there. The few
// connections that come in between are not counted.
func (d *Dataplane) carryCounters(ctx context.Context, items []*item) error {
	var replaced []*item
	for _, it := range items {
		if it.now != nil && it.new != nil && it.now.verdict != "" && it.now.verdict != it.new.verdict {
			now := *it.now // it belongs to the mirror, which others read
			it.now = &now
			replaced = append(replaced, it)
		}
	}
	if len(replaced) <= singleReads {
		return d.readCounters(ctx, replaced)
	}
	byTable := map[*table]map[plan.Key]*item{}
	for _, it := range replaced {
		if byTable[it.table] == nil {
			byTable[it.table] = map[plan.Key]*item{}
		}
		byTable[it.table][it.key] = it
	}
	for t, byKey := range byTable {
		err := eachCounter(ctx, d.writer, t, func(k plan.Key, e *nft.Element) {
			if it := byKey[k]; it != nil {
				it.now.packets, it.now.bytes = e.Packets, e.Bytes
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Dataplane) readCounters(ctx context.Context, items []*item) error {
	var a arena
	for _, it := range items {
		e := nft.Element{Key: a.frontendKey(it.key)}
		if err := d.writer.Element(ctx, it.table.Table, mapsOf(it.key).verdict, &e); err != nil {
			return err
		}
		it.now.packets, it.now.bytes = e.Packets, e.Bytes
	}
	return nil
}
