package iptables

import (
	"context"
	"slices"
	"time"
)

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
