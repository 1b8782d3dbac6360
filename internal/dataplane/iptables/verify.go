package iptables

import (
	"context"
	"slices"
	"time"
)

// Verify lists our tables and compares them with what was written, unless it
// can tell that nobody else wrote since.
func (d *Dataplane) Verify(ctx context.Context) (bool, error) { return d.look(ctx, true) }

// compare lists our tables and holds them against the mirror. It also returns how long
// listing took.
func (d *Dataplane) compare(ctx context.Context, sides []*side) (good bool, took time.Duration, err error) {
	if asleep, err := d.stamper.asleep(ctx); err != nil || len(asleep) > 0 {
		return err != nil, 0, err
	}
	for _, s := range sides {
		for _, t := range s.tables {
			good, last, err := d.compareTable(ctx, s, t)
			if took += last; err != nil || !good {
				return err != nil, took, err
			}
		}
	}
	return true, took, nil
}

const (
	// compareTries is how often a table is listed anew because we wrote meanwhile: then
	// the listing tells nothing. Changes may follow one another for hours.
	compareTries = 10
	// writingPause is the time between two looks whether we are writing.
	writingPause = 2 * time.Millisecond
)

// compareTable lists one table between two pieces of our own writing. It also returns
// how long the last listing took.
func (d *Dataplane) compareTable(ctx context.Context, s *side, t *table) (good bool, took time.Duration, err error) {
	for range compareTries {
		round, err := d.notWriting(ctx)
		if err != nil {
			return true, took, err
		}
		start := d.clock.Now()
		l, err := d.host.list(ctx, t.Table)
		took = d.clock.Since(start)
		if err != nil {
			return true, took, err
		}
		var valid bool
		d.note(func() {
			valid = d.watch.round == round && slices.Contains(d.sides, s)
			good = valid && t.matches(l)
		})
		if valid {
			return good, took, nil
		}
	}
	return true, took, nil // it is the next look's matter
}

// notWriting waits until we do not write, and returns the round.
func (d *Dataplane) notWriting(ctx context.Context) (round uint64, err error) {
	for ctx.Err() == nil {
		writing := false
		d.note(func() { round, writing = d.watch.round, d.watch.writing })
		if !writing {
			return round, nil
		}
		time.Sleep(writingPause)
	}
	return 0, ctx.Err()
}

// matches compares a listing with the mirror.
func (t *table) matches(l *listing) bool {
	ours := 0
	for name, p := range l.chains {
		if !Owns(name) {
			continue
		}
		ours++
		if want, there := t.mirror[name]; !there || !t.same(want, p) {
			return false
		}
	}
	missing, _ := hooksToMend(t.Name, l.builtin)
	return ours == len(t.mirror) && len(missing) == 0
}
