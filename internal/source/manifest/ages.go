package manifest

import (
	"time"

	"sluice/internal/model"
)

// undated is the age of Services whose manifest has no creationTimestamp, and of
// those with one that is later still: nothing can have been created after it.
var undated = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// ages decides how old Services are, by which plan decides between those that
// claim one address. What is there at the start is as old as it says. Whatever
// comes into force later is younger than all that was before it, also if it says
// otherwise: a new manifest takes nothing away from those in force.
type ages struct{ merges int }

func (a ages) now() time.Time { return undated.Add(time.Duration(a.merges)) }

// stamp sets the age of an object that is in force now: that of the last one, if
// it continues that.
func (a ages) stamp(o, last *object, continues bool) {
	for i, e := range o.events {
		set, ok := e.(model.SetService)
		if !ok {
			continue
		}
		created := a.now()
		before := last.service()
		switch {
		case continues && before != nil:
			created = before.Created
		case a.merges == 0 && !set.Created.IsZero() && set.Created.Before(undated):
			created = set.Created
		}
		o.events[i] = aged(set, created)
	}
}

// service is what an object says of a Service, nil if it does not.
func (o *object) service() *model.Service {
	if o == nil {
		return nil
	}
	for _, e := range o.events {
		if set, ok := e.(model.SetService); ok {
			return set.Service
		}
	}
	return nil
}

// aged is a Service of another age.
func aged(set model.SetService, created time.Time) model.SetService {
	if set.Created.Equal(created) {
		return set
	}
	service := *set.Service
	service.Created = created
	return model.SetService{Service: &service}
}

// same tells whether two objects say the same, but for their ages.
func (o *object) same(other *object) bool {
	if len(o.events) != len(other.events) {
		return false
	}
	for i, e := range o.events {
		if set, ok := e.(model.SetService); ok {
			if with, ok := other.events[i].(model.SetService); ok {
				e = aged(set, with.Created)
			}
		}
		if !same(e, other.events[i]) {
			return false
		}
	}
	return true
}

// ageIn is the age of a Service, or that of a new one.
func ageIn(inForce *model.State, name model.Name) time.Time {
	if s := inForce.Service(name); s != nil {
		return s.Created
	}
	return undated.AddDate(0, 6, 0) // more merges than there can be
}
