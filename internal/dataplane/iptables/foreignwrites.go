//go:build linux

package iptables

import (
	"context"
	"slices"
	"time"

	"sluice/internal/kernel/iptables"
)

const (
	// watchPeriod is the time between two checks for writes of others.
	watchPeriod = 250 * time.Millisecond
	// While others keep writing, tables are listed again after listingShare times as
	// long as listing took, or after longRest if that is less; but not before
	// shortShare times as long.
	listingShare = 20
	longRest     = time.Second
	shortShare   = 4
	// quietShare is the same ratio for checksums while no writes are detected.
	quietShare = 100
)

// foreignWrites is the state of detecting writes of other programs.
type foreignWrites struct {
	// known is the last generation that is ours, or that was found harmless.
	known iptables.Generation
	// suspected says that others wrote, and that tables were not compared since.
	suspected bool
	// checksums are those of tables that were in order, nil after we wrote.
	checksums *iptables.Checksums
	// listAfter is when tables may be listed again because of a write, touchedAfter
	// the same for a write to our chains, and checksumAfter when checksums may be
	// computed although no write was detected.
	listAfter, touchedAfter, checksumAfter time.Time
}

// watchOthers checks periodically for writes of others, and signals Disturbed if
// they damaged our chains.
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
		if good, err := d.inspect(d.ctx, false); err != nil && d.ctx.Err() == nil {
			d.logger.V(1).Info("Cannot tell whether other programs changed iptables", "reason", err.Error())
		} else if !good {
			d.disturbed.Notify()
		}
	}
}

// check is how thoroughly tables are checked.
type check int

const (
	noCheck check = iota
	quickCheck
	fullCheck
)

// inspect reports whether our chains are in order. It lists tables only if others
// wrote, and not too often unless due.
func (d *Dataplane) inspect(ctx context.Context, due bool) (good bool, err error) {
	var commits uint64
	var states []*familyState
	d.locked(func() {
		var idle bool
		if commits, idle = d.commits.Count(); idle {
			states = d.states
		}
	})
	if states == nil {
		return true, nil
	}
	now, err := d.monitor.Generation(ctx)
	if err != nil {
		return true, err
	}
	check, suspected := d.assess(now, commits, states, due)
	switch check {
	case noCheck:
		return true, nil
	case quickCheck:
		return d.quickCheck(ctx, states, commits)
	}
	start := d.clock.Now()
	checksums, err := d.monitor.Checksums(ctx)
	if err != nil {
		return true, err
	}
	if !suspected && !d.altered(checksums) {
		end := d.clock.Now()
		d.locked(func() { d.foreign.checksumAfter = end.Add(quietShare * end.Sub(start)) })
		return true, nil
	}
	good, took, err := d.compare(ctx, states)
	d.locked(func() {
		end := d.clock.Now()
		d.foreign.checksumAfter, d.foreign.touchedAfter = end.Add(restAfterListing(took)), end.Add(shortShare*took)
		if suspected {
			d.foreign.listAfter = d.foreign.checksumAfter
		}
		if err == nil && !d.commits.Since(commits) {
			d.foreign.known, d.foreign.suspected, d.foreign.checksums = now, !good, checksums
			retryStuck(states)
		}
	})
	return good, err
}

// assess judges the writes since the known generation, and decides what to check.
func (d *Dataplane) assess(now iptables.Generation, commits uint64, states []*familyState, due bool) (c check, suspected bool) {
	var known iptables.Generation
	d.locked(func() { known = d.foreign.known })
	verdict := iptables.Harmless
	if now != known {
		verdict = d.monitor.Judge(known, now)
	}
	start := d.clock.Now()
	d.locked(func() {
		if d.commits.Since(commits) {
			return // the write may be our own
		}
		switch verdict {
		case iptables.Harmless:
			if d.foreign.known = now; now != known {
				retryStuck(states)
			}
		case iptables.Harmful:
			d.foreign.suspected, d.foreign.listAfter = true, d.foreign.touchedAfter
		case iptables.Unknown:
			d.foreign.suspected = true
		}
		suspected = d.foreign.suspected
		switch {
		case due, suspected && !start.Before(d.foreign.listAfter), !suspected && !start.Before(d.foreign.checksumAfter):
			c = fullCheck
		case suspected:
			c = quickCheck
		}
	})
	return c, suspected
}

// restAfterListing is how long not to list again after a listing that took so long.
func restAfterListing(took time.Duration) time.Duration {
	return max(min(listingShare*took, longRest), shortShare*took)
}

// altered reports whether checksums differ from those of tables that were in order.
func (d *Dataplane) altered(now *iptables.Checksums) (altered bool) {
	d.locked(func() { altered = now != nil && (d.foreign.checksums == nil || *now != *d.foreign.checksums) })
	return altered
}

// quickCheck reads little while it is too early to list everything: whether tables
// are dormant, and the one chain that a flush of everything does not spare.
func (d *Dataplane) quickCheck(ctx context.Context, states []*familyState, commits uint64) (good bool, err error) {
	if dormant, err := d.monitor.Dormant(ctx); err != nil || len(dormant) > 0 {
		return err != nil, err
	}
	good = true
	for _, s := range states {
		t := s.tables[0]
		rules, err := d.driver.Rules(ctx, t.Table, servicesChain)
		if err != nil {
			return true, err
		}
		d.locked(func() { good = good && (d.commits.Since(commits) || len(rules) == t.mirror[servicesChain].Rules) })
	}
	return good, nil
}

func retryStuck(states []*familyState) {
	for _, s := range states {
		for _, t := range s.tables {
			t.retryStuck()
		}
	}
}

// Verify lists our tables and compares them with what was written, unless no other
// program wrote since.
func (d *Dataplane) Verify(ctx context.Context) (bool, error) { return d.inspect(ctx, true) }

// compare lists our tables and compares them with the mirror. It also returns how
// long listing took.
func (d *Dataplane) compare(ctx context.Context, states []*familyState) (good bool, took time.Duration, err error) {
	if dormant, err := d.monitor.Dormant(ctx); err != nil || len(dormant) > 0 {
		return err != nil, 0, err
	}
	for _, s := range states {
		for _, t := range s.tables {
			good, last, err := d.compareTable(ctx, s, t)
			if took += last; err != nil || !good {
				return err != nil, took, err
			}
		}
	}
	return true, took, nil
}

// compareTries is how often a table is listed again because we wrote meanwhile,
// which makes a listing worthless. Changes may follow one another for hours.
const compareTries = 10

// compareTable lists one table between two of our commits. It also returns how long
// the last listing took.
func (d *Dataplane) compareTable(ctx context.Context, s *familyState, t *table) (good bool, took time.Duration, err error) {
	for range compareTries {
		var commits uint64
		if err := d.commits.WhenIdle(ctx, func(n uint64) { commits = n }); err != nil {
			return true, took, err
		}
		start := d.clock.Now()
		l, err := d.driver.List(ctx, t.Table)
		took = d.clock.Since(start)
		if err != nil {
			return true, took, err
		}
		var valid bool
		d.locked(func() {
			valid = !d.commits.Since(commits) && slices.Contains(d.states, s)
			good = valid && t.matches(l)
		})
		if valid {
			return good, took, nil
		}
	}
	return true, took, nil // left to the next inspection
}
