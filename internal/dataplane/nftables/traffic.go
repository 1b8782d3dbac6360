//go:build linux

package nftables

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

var _ dataplane.TrafficReader = (*Dataplane)(nil)

// errUncounted is why there is no traffic to report.
var errUncounted = errors.New("connections are not counted")

// Traffic reads the counters of the packets that tried to open a connection.
func (d *Dataplane) Traffic(ctx context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
	var unmatched dataplane.UnmatchedTraffic
	var tables []*table
	var began uint64
	d.commits.Locked(func() { tables, began = d.tables, d.transactions })
	switch {
	case d.uncounted:
		return unmatched, errUncounted
	case tables == nil:
		return unmatched, dataplane.ErrUnknown
	}
	for _, t := range tables {
		// Frontends missed because the ruleset changed are included the next time.
		if err := d.eachTraffic(ctx, t, began, each); err != nil && !errors.Is(err, nft.ErrInterrupted) {
			return unmatched, err
		}
		if err := d.addUnmatched(ctx, t, &unmatched); err != nil {
			return unmatched, err
		}
	}
	return unmatched, nil
}

// addUnmatched reads the counters of packets to no frontend. They are few, so it can
// be retried.
func (d *Dataplane) addUnmatched(ctx context.Context, t *table, to *dataplane.UnmatchedTraffic) error {
	return retry(ctx, t.Table, 0, func() error {
		rules, err := d.reader.Expressions(ctx, t.Table, fixedNames[unknown])
		for i, rule := range rules {
			for _, e := range rule {
				if i == 0 {
					to.NoSuchPort += e.Packets
				} else {
					to.UnusedAddress += e.Packets
				}
			}
		}
		return err
	})
}

// eachTraffic reads the counters of a table's frontends, after so many transactions.
func (d *Dataplane) eachTraffic(ctx context.Context, t *table, began uint64, each func(plan.Key, dataplane.Traffic)) error {
	// Few frontends have counters besides that of the verdict.
	rest := map[plan.Key]programmed{}
	r := &reader{layout: t.layout, names: map[string]string{}}
	err := t.eachElement(ctx, d.reader, []string{outside, nodePortOutside}, func(k plan.Key, e *nft.Element) {
		rest[k] = programmed{outside: r.nameOf(e), outsidePackets: e.Packets}
	})
	if err != nil {
		return err
	}
	err = t.eachElement(ctx, d.reader, []string{filters, rangeFilters}, func(k plan.Key, e *nft.Element) {
		p := rest[k]
		p.filters, p.filteredPackets = true, e.Packets
		rest[k] = p
	})
	if err != nil {
		return err
	}
	report := func(k plan.Key, p *programmed) {
		if f, carried := d.counted(t, k, p, began); f != nil {
			each(k, trafficOf(f.Frontend, p).Plus(carried))
		}
	}
	err = t.eachElement(ctx, d.reader, []string{services, nodePorts}, func(k plan.Key, e *nft.Element) {
		p := rest[k]
		p.verdict, p.packets = r.nameOf(e), e.Packets
		report(k, &p)
	})
	if err != nil {
		return err
	}
	return d.eachRangeTraffic(ctx, t, r, rest, report)
}

// eachRangeTraffic adds up the counters of the blocks of ranges, besides those that were read.
func (d *Dataplane) eachRangeTraffic(ctx context.Context, t *table, r *reader, rest map[plan.Key]programmed, report func(plan.Key, *programmed)) error {
	var lengths blockLengths
	d.commits.Locked(func() { lengths = t.settings.blocks })
	found := map[plan.Key]*programmed{}
	for set, m := range blockMapsByName {
		if *lengths.of(m.outside)&(1<<m.bits) == 0 {
			continue
		}
		err := d.reader.Elements(ctx, t.Table, set, func(e *nft.Element) error {
			k, _, ours := r.blockOf(m.bits, e)
			if !ours {
				return nil
			}
			if found[k] == nil {
				p := rest[k]
				found[k] = &p
			}
			if found[k].takeBlockCounter(m.outside, e); m.outside {
				found[k].outside = r.nameOf(e)
			} else {
				found[k].verdict = r.nameOf(e)
			}
			return nil
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // the last range is gone
			return err
		}
	}
	for k, p := range found {
		report(k, p)
	}
	return nil
}

// nameOf returns the name of an element's verdict; "" if it has none.
func (r *reader) nameOf(e *nft.Element) string {
	if e.Verdict == nil {
		return ""
	}
	return r.verdictName(e.Verdict)
}

// counted returns the mirror of a frontend and the traffic that is carried over; nil
// if the kernel differs from the mirror at the moment, or if its counters were replaced
// since the reading began: what was read of them before is carried over now.
func (d *Dataplane) counted(t *table, k plan.Key, now *programmed, began uint64) (*frontend, dataplane.Traffic) {
	d.commits.Lock()
	defer d.commits.Unlock()
	f := t.frontends[k]
	if f == nil || f.moved > began || f.targetsDiffer(now) || !slices.Contains(d.tables, t) {
		return nil, dataplane.Traffic{}
	}
	return f, d.carried[k]
}

// trafficOf splits the counters of a frontend by what happened to the packets. What
// the source ranges do not admit, at a frontend without endpoints, counts as refused
// for the lack of endpoints.
func trafficOf(f *plan.Frontend, counted *programmed) dataplane.Traffic {
	t := dataplane.Traffic{Attempts: counted.packets}
	all := int64(counted.packets)
	switch f.Route.Verdict() {
	case plan.Forward:
	case plan.Pass:
		return t
	default:
		t.Refused[f.Route.Empty.Cause] = all
		return t
	}
	t.Refused[plan.SourceRanges] = int64(counted.filteredPackets)
	t.Connections = all
	if out := f.Outside; out != nil {
		switch n := int64(counted.outsidePackets); out.Verdict() {
		case plan.Forward:
		case plan.Pass: // neither a connection nor refused
			t.Connections -= n
		default:
			t.Refused[out.Empty.Cause] += n
		}
	}
	for _, n := range t.Refused {
		t.Connections -= n
	}
	return t
}

// carryTraffic carries over the part of a frontend's traffic that its counters said
// before a change and no longer say after it, so that the sum does not change. If it is
// unknown what they meant before, they count as what they mean now. The caller holds
// the lock.
func (d *Dataplane) carryTraffic(it *item) {
	if it.now == nil || it.new == nil { // it starts, or ends
		delete(d.carried, it.key)
		return
	}
	was := d.countedAs(it)
	if was == nil {
		return
	}
	after := it.new.programmed
	after.packets = it.now.packets
	if after.outside == it.now.outside {
		after.outsidePackets = it.now.outsidePackets
	}
	if after.filters && it.now.filters {
		after.filteredPackets = it.now.filteredPackets
	}
	lost := trafficOf(was, it.now).Minus(trafficOf(it.new.Frontend, &after))
	if carried := d.carried[it.key].Plus(lost); carried != (dataplane.Traffic{}) {
		d.carried[it.key] = carried
	} else {
		delete(d.carried, it.key)
	}
}

// countedAs returns the frontend for which the kernel counted what an item replaces;
// nil if that is unknown because another program wrote it.
func (d *Dataplane) countedAs(it *item) *plan.Frontend {
	was := it.old
	for i := 0; was == nil && i < len(d.former); i++ {
		was = d.former[i].frontends[it.key]
	}
	if was == nil || was.targetsDiffer(it.now) {
		return nil
	}
	return was.Frontend
}
