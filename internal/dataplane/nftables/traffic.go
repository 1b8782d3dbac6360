package nftables

import (
	"context"
	"errors"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

var _ dataplane.Accountant = (*Dataplane)(nil)

// Traffic reads what became of the packets that asked for a connection.
func (d *Dataplane) Traffic(ctx context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.Strays, error) {
	var strays dataplane.Strays
	d.mu.Lock()
	tables := d.tables
	d.mu.Unlock()
	if tables == nil {
		return strays, errUnknown
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
func (d *Dataplane) addStrays(ctx context.Context, t *table, to *dataplane.Strays) error {
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
		if banked, ok := d.bankOf(t, k, &p); ok {
			each(k, p.tally().Plus(banked))
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

// bankOf is what is banked of a frontend, unless the kernel and our mirror, with
// which the bank is in step, say different things of it at the moment.
func (d *Dataplane) bankOf(t *table, k plan.Key, now *programmed) (dataplane.Traffic, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := t.frontends[k]
	return d.banked[k], f != nil && !f.leadsElsewhere(now)
}

// tally splits the counters of a frontend by what became of the packets. Who is
// not admitted by the source ranges of a Service without endpoints counts as one
// who met no endpoints.
func (p *programmed) tally() dataplane.Traffic {
	t := dataplane.Traffic{Attempts: p.packets}
	all := int64(p.packets)
	if why, refused := refusal(p.verdict); refused {
		t.Refused[why] = all
		return t
	}
	if p.outside == dropName {
		t.Refused[dataplane.NoLocalEndpoint] = int64(p.outsidePackets)
	}
	t.Refused[dataplane.SourceRange] = int64(p.filteredPackets)
	t.Connections = all - t.Refused[dataplane.NoLocalEndpoint] - t.Refused[dataplane.SourceRange]
	return t
}

// refusal tells why a verdict refuses everybody, if it does.
func refusal(verdict string) (dataplane.Refusal, bool) {
	switch {
	case verdict == dropName:
		return dataplane.NoLocalEndpoint, true
	case verdict == fixedNames[reject], strings.HasSuffix(verdict, plan.Reject.String()):
		return dataplane.NoEndpoints, true
	}
	return 0, false
}

// bank keeps what the counters of a frontend said before a change and do not
// say after it, so that the two together go on as if nothing had happened. The
// caller holds mu.
func (d *Dataplane) bank(it *item) {
	if it.now == nil || it.new == nil { // it starts, or ends
		delete(d.banked, it.key)
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
	before := it.now.tally().Minus(after.tally())
	if banked := d.banked[it.key].Plus(before); banked != (dataplane.Traffic{}) {
		d.banked[it.key] = banked
	} else {
		delete(d.banked, it.key)
	}
}
