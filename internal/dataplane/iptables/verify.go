package iptables

import "context"

// Verify lists our tables and compares them with what was written, unless it
// can tell that nobody else wrote since.
func (d *Dataplane) Verify(ctx context.Context) (bool, error) { return d.look(ctx, true) }

// compare lists our tables and holds them against the mirror. While something
// is being written nothing can be said, which is the next look's matter.
func (d *Dataplane) compare(ctx context.Context, sides []*side, round uint64) (bool, error) {
	if asleep, err := d.stamper.asleep(ctx); err != nil || len(asleep) > 0 {
		return err != nil, err
	}
	for _, s := range sides {
		for _, t := range s.tables {
			l, err := d.host.list(ctx, t.Table)
			if err != nil {
				return true, err
			}
			good := true
			d.note(func() { good = d.watch.round != round || t.matches(l) })
			if !good {
				return false, nil
			}
		}
	}
	return true, nil
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
