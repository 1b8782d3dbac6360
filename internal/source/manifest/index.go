package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/model"
)

// index knows where each object is defined. What it says depends only on the
// contents that are in it, and the work of a change only on those that came or
// went.
type index struct {
	// objects are all definitions of an object. The first one is in force.
	objects map[identity][]definition
	// repeated are the objects with more than one.
	repeated map[identity]bool
	// touched are the objects that may have changed since the last merge, each
	// with what was in force then, if anything was.
	touched map[identity]*object
}

func newIndex() index {
	return index{objects: map[identity][]definition{}, repeated: map[identity]bool{}, touched: map[identity]*object{}}
}

// identity tells objects apart.
type identity struct {
	kind string
	name model.Name
}

func (o *object) identity() identity { return identity{o.kind, o.name} }

// definition is an object in a file.
type definition struct {
	in *contents
	at int
}

func (d definition) object() *object { return &d.in.objects[d.at] }

// compare orders by the names of files, and by the place in a file.
func (d definition) compare(o definition) int {
	return cmp.Or(strings.Compare(d.in.file, o.in.file), cmp.Compare(d.at, o.at))
}

// replace puts the contents of a file in the place of its old ones. Either may
// be nil. It needs a merge to have an effect.
func (x *index) replace(old, next *contents) {
	if old == next {
		return
	}
	if old != nil {
		old.replaced = true
		for i := range old.objects {
			x.touch(old.objects[i].identity())
		}
	}
	if next != nil {
		for i := range next.objects {
			id := next.objects[i].identity()
			x.touch(id)
			x.objects[id] = append(x.objects[id], definition{next, i})
		}
	}
}

func (x *index) touch(id identity) {
	if _, ok := x.touched[id]; ok {
		return
	}
	x.touched[id] = nil
	if definitions := x.objects[id]; len(definitions) > 0 {
		x.touched[id] = definitions[0].object()
	}
}

// merge brings what was touched into order. It returns the events for what
// differs from before, and whether the problems may.
func (x *index) merge() (events []model.Event, problems bool) {
	old, next := map[key]model.Event{}, map[key]model.Event{}
	for id, before := range x.touched {
		repeated := x.repeated[id]
		now := x.order(id)
		problems = problems || repeated || x.repeated[id]
		if before == nil || now == nil || !slices.Equal(before.events, now.events) {
			before.list(old)
			now.share(old)
			now.list(next)
		}
	}
	x.touched = map[identity]*object{}
	return difference(old, next), problems
}

// list adds the events of an object, if there is one.
func (o *object) list(events map[key]model.Event) {
	if o == nil {
		return
	}
	for _, e := range o.events {
		events[keyOf(e)] = e
	}
}

// share replaces the values of an object, if there is one, by equal ones that
// the sink holds already, so that only one of them stays in memory.
func (o *object) share(known map[key]model.Event) {
	if o == nil {
		return
	}
	for i, e := range o.events {
		if k, ok := known[keyOf(e)]; ok && same(k, e) {
			o.events[i] = k
		}
	}
}

// order puts the definitions of an object in order and drops those that were
// replaced. It returns the one in force, or nil.
func (x *index) order(id identity) *object {
	definitions := slices.DeleteFunc(x.objects[id], func(d definition) bool { return d.in.replaced })
	delete(x.repeated, id)
	if len(definitions) == 0 {
		delete(x.objects, id)
		return nil
	}
	if len(definitions) > 1 {
		slices.SortFunc(definitions, definition.compare)
		x.repeated[id] = true
	}
	x.objects[id] = definitions
	return definitions[0].object()
}

// problems reports the definitions that are not in force, in their order.
func (x *index) problems() []Problem {
	var unused []definition
	for id := range x.repeated {
		unused = append(unused, x.objects[id][1:]...)
	}
	slices.SortFunc(unused, definition.compare)
	problems := make([]Problem, len(unused))
	for i, d := range unused {
		problems[i] = duplicate(d, x.objects[d.object().identity()][0])
	}
	return problems
}

func duplicate(d, first definition) Problem {
	o := d.object()
	return Problem{File: d.in.file, Document: o.document, Line: o.line, Refused: true, Problem: model.Problem{
		Object: o.String(),
		Field:  "metadata.name",
		Reason: fmt.Sprintf("it is in %s, document %d, already, and that one is used", first.in.file, first.object().document),
		Remedy: "remove one of the two or rename it",
	}}
}
