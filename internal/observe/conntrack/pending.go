package conntrack

import (
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

// update is the last change of a frontend: it was set, or removed, or, if
// neither, refused by the kernel.
type update struct {
	frontend *plan.Frontend
	removed  bool
}

func (p *pending) empty() bool { return len(p.updates) == 0 && p.settings == nil && !p.everything }

// add adds a commit, as far as it concerns tracked protocols.
func (p *pending) add(change *plan.Change, refused map[plan.Key]error, tracks protocols) {
	for _, f := range change.Set {
		p.put(tracks, f.Key, update{frontend: f})
	}
	for _, f := range change.Serving {
		p.put(tracks, f.Key, update{frontend: f})
	}
	for _, key := range change.Removed {
		p.put(tracks, key, update{removed: true})
	}
	for key := range refused {
		p.put(tracks, key, update{})
	}
	if change.Settings != nil {
		p.settings = change.Settings
	}
}

func (p *pending) put(tracks protocols, key plan.Key, u update) {
	if !tracks.include(key.Protocol) {
		return
	}
	if p.updates == nil {
		p.updates = map[plan.Key]update{}
	}
	if _, overtaken := p.updates[key]; overtaken {
		// Flows may have begun under a version that is not examined.
		p.everything = true
	}
	p.updates[key] = u
}

// apply updates an index, and returns the protocols whose entries can be stale
// now. Removed frontends and addresses only matter to UDP: the endpoints of
// their TCP connections still exist.
func (p *pending) apply(x *index, tracks protocols) (due protocols) {
	if p.everything {
		due = tracks
	}
	if p.settings != nil && x.configure(p.settings) {
		due = due.with(model.UDP)
	}
	for key, u := range p.updates {
		switch {
		case u.removed:
			x.remove(key)
			if key.Protocol == model.UDP {
				due = due.with(model.UDP)
			}
		case u.frontend == nil:
			x.refuse(key)
		case x.set(u.frontend):
			due = due.with(key.Protocol)
		}
	}
	return due
}
