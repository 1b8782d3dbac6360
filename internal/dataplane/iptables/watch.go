package iptables

import (
	"context"
	"time"
)

const (
	// watchPeriod is the time between two looks whether somebody else wrote.
	watchPeriod = 250 * time.Millisecond
	// While somebody writes all the time, listingShare times as long passes as is spent
	// on listing, or longRest if that is less; but at least shortShare times as long.
	listingShare = 20
	longRest     = time.Second
	shortShare   = 4
	// quietShare is how much more time passes than is spent on reading while nobody
	// seems to write.
	quietShare = 100
)

// watch is what is known of others who write.
type watch struct {
	// round counts our own pieces of writing; writing says that one is under
	// way, and that what is listed meanwhile tells nothing.
	round   uint64
	writing bool
	// known is the stamp that is ours, or was found to be harmless.
	known stamp
	// suspicious says that somebody else wrote and nobody looked yet.
	suspicious bool
	// contents are those that were found to be in order, nil after we wrote.
	contents *contents
	// notBefore is when tables may be listed again because somebody wrote, soonest
	// when because it was to what is ours, and quietBefore when they may be read
	// although nobody seems to have.
	notBefore, soonest, quietBefore time.Time
}

// run carries an input out.
func (d *Dataplane) run(ctx context.Context, t *table, in *input, partial bool) error {
	before, berr := d.stamper.stamp(ctx)
	if err := d.host.write(ctx, t.Family, in.reader()); err != nil {
		d.note(func() {
			if partial {
				d.stats.partialFailures[t.Family]++
			} else {
				d.stats.failures[t.Family]++
			}
		})
		return err
	}
	entries := t.entries(in)
	after, aerr := d.stamper.stamp(ctx)
	d.note(func() {
		t.done(in)
		d.watch.contents = nil
		if berr != nil || aerr != nil || before != d.watch.known || !d.stamper.expected(before, t.Table, entries).sameCounts(after) {
			d.watch.suspicious = true
		}
		d.watch.known = after
	})
	return nil
}

// entries is how many entries an input adds to a table of legacy: one for each
// rule, and two for each chain.
func (t *table) entries(in *input) int {
	n := len(in.missing) - len(in.removing)
	for _, p := range in.pages {
		have, there := t.mirror[p.chain]
		if n += p.rules - have.rules; !there {
			n += 2
		}
	}
	for _, name := range in.gone {
		n -= t.mirror[name].rules + 2
	}
	return n
}

// watchOthers looks every now and then whether somebody else wrote, and says so
// if it did us harm.
func (d *Dataplane) watchOthers() {
	timer := d.clock.NewTimer(d.period)
	defer timer.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-timer.C():
			timer.Reset(d.period)
		}
		if good, err := d.look(d.ctx, false); err != nil && d.ctx.Err() == nil {
			d.logger.V(1).Info("Cannot tell whether somebody else changed iptables", "reason", err.Error())
		} else if !good {
			d.disturbed.Notify()
		}
	}
}

// look tells whether our chains are in order, as far as that is due: unless
// somebody else wrote they are, and listing is not for every time.
func (d *Dataplane) look(ctx context.Context, due bool) (bool, error) {
	var round uint64
	var sides []*side
	d.note(func() {
		if !d.watch.writing {
			round, sides = d.watch.round, d.sides
		}
	})
	if sides == nil {
		return true, nil
	}
	now, err := d.stamper.stamp(ctx)
	if err != nil {
		return true, err
	}
	var known stamp
	d.note(func() { known = d.watch.known })
	judgement := harmless
	if now != known {
		judgement = d.stamper.judge(known, now)
	}
	start := d.clock.Now()
	var suspicious, list, quiet bool
	d.note(func() {
		if d.watch.round != round {
			return // what was read may be our own
		}
		switch judgement {
		case harmless:
			if d.watch.known = now; now != known {
				retryStuck(sides)
			}
		case harmful:
			d.watch.suspicious, d.watch.notBefore = true, d.watch.soonest
		case unheard:
			d.watch.suspicious = true
		}
		suspicious = d.watch.suspicious
		list = due || !start.Before(d.watch.notBefore)
		quiet = due || !start.Before(d.watch.quietBefore)
	})
	switch {
	case suspicious && !list:
		return d.glance(ctx, sides, round)
	case !suspicious && !quiet:
		return true, nil
	}
	read, err := d.stamper.contents(ctx)
	if err != nil {
		return true, err
	}
	if !suspicious && !d.altered(read) {
		end := d.clock.Now()
		d.note(func() { d.watch.quietBefore = end.Add(quietShare * end.Sub(start)) })
		return true, nil
	}
	good, took, err := d.compare(ctx, sides)
	d.note(func() {
		end := d.clock.Now()
		d.watch.quietBefore, d.watch.soonest = end.Add(restAfterListing(took)), end.Add(shortShare*took)
		if suspicious {
			d.watch.notBefore = d.watch.quietBefore
		}
		if err == nil && d.watch.round == round {
			d.watch.known, d.watch.suspicious, d.watch.contents = now, !good, read
			retryStuck(sides)
		}
	})
	return good, err
}

// restAfterListing is how long to rest from listing that took so long.
func restAfterListing(took time.Duration) time.Duration {
	return max(min(listingShare*took, longRest), shortShare*took)
}

// altered tells whether tables may hold something else than when they were compared.
func (d *Dataplane) altered(read *contents) (altered bool) {
	d.note(func() { altered = read != nil && (d.watch.contents == nil || *read != *d.watch.contents) })
	return altered
}

// glance looks at what is quickly read, while it is too early to list all: whether
// tables sleep, and the one chain that whoever flushes everything does not spare.
func (d *Dataplane) glance(ctx context.Context, sides []*side, round uint64) (good bool, err error) {
	if asleep, err := d.stamper.asleep(ctx); err != nil || len(asleep) > 0 {
		return err != nil, err
	}
	good = true
	for _, s := range sides {
		t := s.tables[0]
		rules, err := d.host.rulesOf(ctx, t.Table, servicesChain)
		if err != nil {
			return true, err
		}
		d.note(func() { good = good && (d.watch.round != round || len(rules) == t.mirror[servicesChain].rules) })
	}
	return good, nil
}

// retryStuck has chains removed that could not be: whoever kept them may have
// let go.
func retryStuck(sides []*side) {
	for _, s := range sides {
		for _, t := range s.tables {
			for name := range t.stuck {
				t.surplus[name] = true
			}
			clear(t.stuck)
		}
	}
}
