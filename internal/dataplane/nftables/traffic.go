package nftables

import (
	"context"
	"errors"

	"sluice/internal/dataplane"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

var _ dataplane.TrafficReader = (*Dataplane)(nil)

// Traffic reads what became of the packets that asked for a connection.
func (d *Dataplane) Traffic(ctx context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
	var strays dataplane.UnmatchedTraffic
	var tables []*table
	d.commits.Locked(func() { tables = d.tables })
	if tables == nil {
		return strays, dataplane.ErrUnknown
	}
	for _, t := range tables {
		// Frontends that were missed because the ruleset changed come next time.
		if err := d.eachTraffic(ctx, t, each); err != nil && !errors.Is(err, nft.ErrInterrupted) {
			return strays, err
		}
		if err := d.addStrays(ctx, t, &strays); err != nil {
			return strays, err
		}
	}
	return strays, nil
}

// addStrays reads the counters of what is no frontend. There are few of them, so
// that reading is soon over when it was interrupted.
func (d *Dataplane) addStrays(ctx context.Context, t *table, to *dataplane.UnmatchedTraffic) error {
	var counts []uint64
	err := nft.ErrInterrupted
	for tries := 0; tries < readTries && errors.Is(err, nft.ErrInterrupted); tries++ {
		counts, err = d.reader.RuleCounters(ctx, t.Table, fixedNames[unknown])
	}
	if err != nil {
		return err
	}
	for i, n := range counts {
		if i == 0 {
			to.UnknownPort += n
		} else {
			to.UnallocatedAddress += n
		}
	}
	return nil
}

func (d *Dataplane) eachTraffic(ctx context.Context, t *table, each func(plan.Key, dataplane.Traffic)) error {
	// Few frontends have more than a verdict.
	rest := map[plan.Key]programmed{}
	r := &reader{names: map[string]string{}}
	err := t.eachElement(ctx, d.reader, []string{outside, nodePortOutside}, func(k plan.Key, e *nft.Element) {
		rest[k] = programmed{outside: r.nameOf(e), outsidePackets: e.Packets}
	})
	if err != nil {
		return err
	}
	err = t.eachElement(ctx, d.reader, []string{filters}, func(k plan.Key, e *nft.Element) {
		p := rest[k]
		p.filters, p.filteredPackets = true, e.Packets
		rest[k] = p
	})
	if err != nil {
		return err
	}
	return t.eachElement(ctx, d.reader, []string{services, nodePorts}, func(k plan.Key, e *nft.Element) {
		p := rest[k]
		p.verdict, p.packets = r.nameOf(e), e.Packets
		if f, banked := d.tellable(t, k, &p); f != nil {
			each(k, tally(f.Frontend, &p).Plus(banked))
		}
	})
}

// nameOf names the verdict of an element; "" if it has none.
func (r *reader) nameOf(e *nft.Element) string {
	if e.Verdict == nil {
		return ""
	}
	return r.verdictName(e.Verdict)
}

// tellable is the mirror of a frontend and what is banked of it; nil if the kernel
// and the mirror, with which the bank is in step, say different things of it at
// the moment.
func (d *Dataplane) tellable(t *table, k plan.Key, now *programmed) (*frontend, dataplane.Traffic) {
	d.commits.Lock()
	defer d.commits.Unlock()
	f := t.frontends[k]
	if f == nil || f.leadsElsewhere(now) {
		return nil, dataplane.Traffic{}
	}
	return f, d.banked[k]
}

// tally splits the counters of a frontend by what became of the packets. Who is
// not admitted by the source ranges of a Service without endpoints counts as one
// who met no endpoints.
func tally(f *plan.Frontend, counted *programmed) dataplane.Traffic {
	t := dataplane.Traffic{Attempts: counted.packets}
	all := int64(counted.packets)
	if len(f.Route.Endpoints) == 0 {
		t.Refused[f.Route.Empty.Cause] = all
		return t
	}
	t.Refused[plan.SourceRange] = int64(counted.filteredPackets)
	if out := f.Outside; out != nil && len(out.Endpoints) == 0 {
		t.Refused[out.Empty.Cause] += int64(counted.outsidePackets)
	}
	t.Connections = all
	for _, n := range t.Refused {
		t.Connections -= n
	}
	return t
}

// bank keeps what the counters of a frontend said before a change and do not
// say after it, so that the two together go on as if nothing had happened. Where
// it is not known what they meant, all count by what they mean now. The caller
// holds the lock.
func (d *Dataplane) bank(it *item) {
	if it.now == nil || it.new == nil { // it starts, or ends
		delete(d.banked, it.key)
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
	before := tally(was, it.now).Minus(tally(it.new.Frontend, &after))
	if banked := d.banked[it.key].Plus(before); banked != (dataplane.Traffic{}) {
		d.banked[it.key] = banked
	} else {
		delete(d.banked, it.key)
	}
}

// countedAs is the frontend under which the kernel counted what an item replaces;
// nil if that is not known: somebody else wrote it.
func (d *Dataplane) countedAs(it *item) *plan.Frontend {
	was := it.old
	for i := 0; was == nil && i < len(d.former); i++ {
		was = d.former[i].frontends[it.key]
	}
	if was == nil || was.leadsElsewhere(it.now) {
		return nil
	}
	return was.Frontend
}
