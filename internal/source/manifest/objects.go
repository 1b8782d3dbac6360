package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"sluice/internal/model"
	"sluice/internal/source"
)

// object is one object of a manifest: its name, its place, and the events that
// set it. An object that is not for this proxy has no events.
type object struct {
	identity
	file     string
	document int
	number   int // in the document
	line     int
	events   []model.Event
	removed  bool // its file no longer holds it
}

// identity is the key of an object.
type identity struct {
	kind string
	name model.Name
}

func (id identity) String() string { return id.object().String() }

// object is how problems name it.
func (id identity) object() model.Object {
	return model.Object{Kind: id.kind, Namespace: id.name.Namespace, Name: id.name.Name}
}

// objects knows which objects are in force. The work of a change depends only on
// the objects of the files that changed.
type objects struct {
	all      map[identity][]*object // the first of each is in force
	repeated map[identity]bool      // those of which there are several
	touched  []identity             // to settle, in order
	before   map[identity]*object   // of those that are touched, the one in force before
	gone     map[identity]departure // those that went a short while ago
	settles  int
}

// departure is an object that was in force, and when that ended.
type departure struct {
	*object
	at time.Time
}

func newObjects() objects {
	return objects{all: map[identity][]*object{}, repeated: map[identity]bool{}, before: map[identity]*object{}, gone: map[identity]departure{}}
}

// replace puts the objects of a file in place of its old ones. They may share
// some. It takes effect when settle is called.
func (x *objects) replace(old, next []*object) {
	for len(old) > 0 && len(next) > 0 && old[0] == next[0] {
		old, next = old[1:], next[1:]
	}
	for len(old) > 0 && len(next) > 0 && old[len(old)-1] == next[len(next)-1] {
		old, next = old[:len(old)-1], next[:len(next)-1]
	}
	for _, o := range old {
		o.removed = true
		x.touch(o.identity)
	}
	for _, o := range next {
		x.touch(o.identity)
		if !o.removed {
			x.all[o.identity] = append(x.all[o.identity], o)
		}
		o.removed = false
	}
}

func (x *objects) touch(id identity) {
	if _, ok := x.before[id]; ok {
		return
	}
	x.touched = append(x.touched, id)
	x.before[id] = nil
	if all := x.all[id]; len(all) > 0 {
		x.before[id] = all[0]
	}
}

// settle decides which of the objects that were touched are in force, and returns
// the events for what differs from before.
func (x *objects) settle(now time.Time) (events []model.Event) {
	maps.DeleteFunc(x.gone, func(_ identity, d departure) bool { return now.Sub(d.at) >= graceTime })
	for _, id := range x.touched {
		before := x.before[id]
		chosen, continued := x.choose(id)
		x.setAge(chosen, continued)
		if before != nil && !x.continued(id, before) && x.gone[id].object == nil {
			x.gone[id] = departure{before, now}
		}
		events = append(events, chosen.since(before)...)
	}
	x.touched, x.before = nil, map[identity]*object{}
	x.settles++
	return events
}

// choose returns the object that is in force, nil if there is none, and the one that it
// continues if it does: of several of one name, the one that continues what was in force,
// or the first. What went a short while ago, and is back, was in force all the time.
func (x *objects) choose(id identity) (chosen, continued *object) {
	all := slices.DeleteFunc(x.all[id], func(o *object) bool { return o.removed })
	delete(x.repeated, id)
	if len(all) == 0 {
		delete(x.all, id)
		return nil, nil
	}
	x.all[id] = all
	before := x.before[id]
	if gone := x.gone[id].object; x.continued(id, gone) {
		before = gone
		delete(x.gone, id)
	}
	if len(all) > 1 {
		x.repeated[id] = true
		slices.SortFunc(all, func(a, b *object) int {
			return cmp.Or(cmp.Compare(a.succession(before), b.succession(before)), a.compare(b))
		})
	}
	return all[0], before
}

// compare orders objects by the names of their files and their places there.
func (o *object) compare(p *object) int {
	return cmp.Or(strings.Compare(o.file, p.file), cmp.Compare(o.document, p.document), cmp.Compare(o.number, p.number))
}

// since returns the events that lead from one object of a name to the next. Either
// may be nil. Values that are the same are shared, so that only one stays in memory.
func (o *object) since(before *object) (changes []model.Event) {
	if o == nil {
		o = &object{}
	}
	if before == nil {
		return o.events
	}
	o.events, changes = source.Diff(before.events, o.events)
	return changes
}

// How an object continues the one that was in force, the closest first. Whatever
// else turns up under its name, an object stays what it is for as long as it is
// there: in its file, or moved to another one.
const unchanged, edited, moved, unrelated = 0, 1, 2, 3

func (o *object) succession(before *object) int {
	switch {
	case before == nil:
		return unrelated
	case o == before || o.file == before.file && o.same(before):
		return unchanged
	case o.file == before.file:
		return edited
	case o.same(before):
		return moved
	}
	return unrelated
}

// continues reports whether an object is the same one as one that was in force.
func (o *object) continues(before *object) bool {
	return before != nil && (o.file == before.file || o.same(before))
}

// continued reports whether one of the objects of a name continues another.
func (x *objects) continued(id identity, before *object) bool {
	return slices.ContainsFunc(x.all[id], func(o *object) bool { return o.continues(before) })
}

// undated is the age of Services without a creationTimestamp, and of those with a
// later one.
var undated = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// setAge sets the age of a Service, by which plan decides between those that claim
// one address. At the start, a Service is as old as it says. One that comes into
// force later is younger than all before it, whatever it says: a new manifest takes
// nothing away from those in force.
func (x *objects) setAge(o, before *object) {
	set, ok := o.service()
	if !ok {
		return
	}
	created := undated.Add(time.Duration(x.settles))
	if old, ok := before.service(); ok && o.continues(before) {
		created = old.Created
	} else if x.settles == 0 && !set.Created.IsZero() && set.Created.Before(undated) {
		created = set.Created
	}
	o.events[0] = aged(set, created)
}

// service returns the Service that an object sets, if it does.
func (o *object) service() (set model.SetService, ok bool) {
	if o != nil && len(o.events) > 0 {
		set, ok = o.events[0].(model.SetService)
	}
	return set, ok
}

// aged returns a Service of another age.
func aged(set model.SetService, created time.Time) model.SetService {
	if set.Created.Equal(created) {
		return set
	}
	service := *set.Service
	service.Created = created
	return model.SetService{Service: &service}
}

// same reports whether two objects of one name set the same, but for their ages.
func (o *object) same(other *object) bool {
	mine, ok := o.service()
	theirs, also := other.service()
	if ok && also {
		return mine == theirs || reflect.DeepEqual(aged(mine, theirs.Created), theirs)
	}
	return reflect.DeepEqual(o.events, other.events)
}

// unused returns the objects that are not in force because of others.
func (x *objects) unused() (all []*object) {
	for id := range x.repeated {
		all = append(all, x.all[id][1:]...)
	}
	slices.SortFunc(all, (*object).compare)
	return all
}

// duplicate reports an object that is not in force.
func (x *objects) duplicate(o *object) Problem {
	used := x.all[o.identity][0]
	return Problem{File: o.file, Document: o.document, Line: o.line, Refused: true, Problem: model.Problem{
		Object: o.object(),
		Field:  "metadata.name",
		Reason: fmt.Sprintf("it is in %s, document %d, already, and that one is used", used.file, used.document),
		Remedy: "remove one of the two or rename it",
	}}
}
