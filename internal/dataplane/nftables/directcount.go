//go:build linux

package nftables

import (
	"context"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
)

// counterID is a counter of the kernel: that of an element of a set, or of a rule of a chain.
type counterID struct {
	table nft.Family
	in    string // the set or chain
	key   string
	rule  int
}

// tally is what counters were when they were read.
type tally map[counterID]uint64

// growth records a counter, and returns by how much it has grown since before. One that has become smaller was
// written anew.
func (t tally) growth(before tally, id counterID, now uint64) uint64 {
	t[id] = now
	if was := before[id]; was <= now {
		return now - was
	}
	return now
}

// Handed implements dataplane.DirectReturner.
func (d *directState) Handed(ctx context.Context) (dataplane.Handed, error) {
	h, now := dataplane.Handed{From: map[string]uint64{}}, tally{}
	if d.conn.Conn == nil {
		return h, nil
	}
	for _, m := range d.mirrors() {
		if err := d.countPackets(ctx, m, &h, now); err != nil {
			return dataplane.Handed{}, err
		}
	}
	for _, f := range d.families {
		if err := d.countReceived(ctx, f, &h, now); err != nil {
			return dataplane.Handed{}, err
		}
	}
	d.counted = now
	return h, nil
}

// countPackets adds packets that were handed on by rules of a table: as they came, and by the chains for second
// chances, of which the first rule has those that came in fragments.
func (d *directState) countPackets(ctx context.Context, m *mirror, h *dataplane.Handed, now tally) error {
	chains, err := d.conn.Counters(ctx, m.Table)
	for name, rules := range chains {
		for i, packets := range rules {
			grown := now.growth(d.counted, counterID{table: m.Family, in: name, rule: i}, packets)
			switch later := strings.HasPrefix(name, secondPrefix); {
			case strings.HasPrefix(name, passPrefix):
				h.On += grown
			case later && i == 0:
				h.Late += grown
			case later:
				h.Second += grown
			}
		}
	}
	return err
}

// countReceived adds connections of a family that other nodes have handed to this one.
func (d *directState) countReceived(ctx context.Context, f *directFamily, h *dataplane.Handed, now tally) error {
	names := map[dataplane.MAC]string{}
	for _, p := range d.settings.Peers {
		for _, family := range model.Families {
			names[p.Path(family).MAC] = p.Name
		}
	}
	delete(names, dataplane.MAC{})
	return d.conn.Elements(ctx, f.Table, handedBy, func(e *nft.Element) error {
		if name, known := names[dataplane.MAC(e.Key)]; known {
			h.From[name] += now.growth(d.counted, counterID{table: f.nf, in: handedBy, key: string(e.Key)}, e.Packets)
		}
		return nil
	})
}
