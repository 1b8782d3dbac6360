//go:build linux

package conntrack

import (
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// pending is what was committed since the loop last looked.
type pending struct {
	updates  map[plan.Key]update
	settings *plan.Settings // nil if they stay as they are
	// everything says that entries of any frontend may be stale.
	everything bool
}

// update is what became of a frontend: what it was, nil if it is new, and what it is, nil if
// it is gone.
type update struct {
	before, now *plan.Frontend
	changed     bool // otherwise there is neither
	refused     bool // by the kernel
	released    bool // to another proxy, before it went
}

func (p *pending) empty() bool { return len(p.updates) == 0 && p.settings == nil && !p.everything }

// add adds a commit, as far as it concerns tracked protocols.
func (p *pending) add(change *plan.Change, refused map[plan.Key]error) {
	for _, f := range slices.Concat(change.Set, change.Serving) {
		p.put(f.Key, change.Before[f.Key], f)
	}
	for _, key := range change.Removed {
		p.put(key, change.Before[key], nil)
	}
	for key := range refused {
		if tracked(key.Protocol) {
			u := p.updates[key]
			u.refused = true
			p.set(key, u)
		}
	}
	if change.Settings != nil {
		p.settings = change.Settings
	}
}

func (p *pending) put(key plan.Key, before, now *plan.Frontend) {
	if !tracked(key.Protocol) {
		return
	}
	released := now == nil && before != nil && before.Released
	if earlier, overtaken := p.updates[key]; overtaken {
		// Flows may have begun under a version that is not examined.
		p.everything = true
		if earlier.changed {
			before = earlier.before
		}
	}
	p.set(key, update{before: before, now: now, changed: true, released: released})
}

func (p *pending) set(key plan.Key, u update) {
	if p.updates == nil {
		p.updates = map[plan.Key]update{}
	}
	p.updates[key] = u
}

// apply updates an index, and returns the kinds of entries that can be stale
// now. Removed frontends and addresses only matter to UDP: the endpoints of
// their TCP connections still exist.
func (p *pending) apply(x *index, tracks kinds) (due kinds) {
	if p.everything {
		due = tracks
	}
	if p.settings != nil && x.configure(p.settings) {
		due = due.with(allUDP)
	}
	for key, u := range p.updates {
		if u.changed {
			x.count(u.before, u.now)
		}
		switch {
		case u.refused:
			x.refuse(key)
		case u.released: // its flows are the other proxy's
			delete(x.refused, key)
		case u.now == nil:
			x.remove(key)
			if key.Protocol == model.UDP {
				due = due.with(allUDP)
			}
		default:
			for _, one := range x.set(u.before, u.now) {
				due = due.with(one)
			}
		}
	}
	return due
}
