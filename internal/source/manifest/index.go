package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/model"
)

// index knows where each object is defined, and which definition is in force. The
// work of a change depends only on the contents that came or went.
type index struct {
	// objects are all definitions of an object. The first one is in force.
	objects map[identity][]definition
	// repeated are the objects with more than one.
	repeated map[identity]bool
	// touched are the objects that may have changed since the last merge, each
	// with the definition that was in force then, if one was.
	touched map[identity]definition
	ages    ages
}

func newIndex() index {
	return index{objects: map[identity][]definition{}, repeated: map[identity]bool{}, touched: map[identity]definition{}}
}

// identity tells objects apart.
type identity struct {
	kind string
	name model.Name
}

func (o *object) identity() identity { return identity{o.kind, o.name} }

// definition is an object in a file. The zero value is none.
type definition struct {
	in *contents
	at int
}

func (d definition) object() *object {
	if d.in == nil {
		return nil
	}
	return &d.in.objects[d.at]
}

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
	x.touched[id] = definition{}
	if definitions := x.objects[id]; len(definitions) > 0 {
		x.touched[id] = definitions[0]
	}
}

// merge brings what was touched into order. It returns the events for what
// differs from before, and whether the problems may.
func (x *index) merge() (events []model.Event, problems bool) {
	old, next := map[key]model.Event{}, map[key]model.Event{}
	for id, last := range x.touched {
		repeated := x.repeated[id]
		before, now := last.object(), x.order(id, last).object()
		problems = problems || repeated || x.repeated[id]
		if before == nil || now == nil || !slices.Equal(before.events, now.events) {
			before.list(old)
			now.share(old)
			now.list(next)
		}
	}
	x.touched = map[identity]definition{}
	x.ages.merges++
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

// order drops the definitions of an object that were replaced, and puts the one
// first that is in force now, if there is one: it is returned.
func (x *index) order(id identity, last definition) definition {
	definitions := slices.DeleteFunc(x.objects[id], func(d definition) bool { return d.in.replaced })
	delete(x.repeated, id)
	if len(definitions) == 0 {
		delete(x.objects, id)
		return definition{}
	}
	if len(definitions) > 1 {
		slices.SortFunc(definitions, func(a, b definition) int {
			return cmp.Or(cmp.Compare(a.succession(last), b.succession(last)), a.compare(b))
		})
		x.repeated[id] = true
	}
	x.objects[id] = definitions
	first := definitions[0]
	x.ages.stamp(first.object(), last.object(), first.succession(last) != stranger)
	return first
}

// What makes a definition take the place of the one that was in force last, the
// best first. Whatever else turns up under its name, an object stays what it is
// for as long as it is there: in its file, or moved to another one.
const (
	unchanged = iota
	edited
	moved
	stranger
)

func (d definition) succession(last definition) int {
	switch {
	case last.in == nil:
		return stranger
	case d == last || d.in.file == last.in.file && d.object().same(last.object()):
		return unchanged
	case d.in.file == last.in.file:
		return edited
	case d.object().same(last.object()):
		return moved
	}
	return stranger
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
