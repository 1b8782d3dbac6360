package kubernetes

import (
	"fmt"
	"sync"
	"unique"

	"k8s.io/client-go/tools/cache"

	"sluice/internal/model"
	"sluice/internal/source"
)

// store receives the objects of one kind from a reflector. It passes on what
// changed, and keeps just enough to determine that: the events of each object,
// whose values the sink holds too.
type store struct {
	outlet *outlet
	listed func() // called when a complete list was stored

	mu      sync.Mutex
	objects map[model.Name][]model.Event // without those that led to no events
}

var _ cache.ReflectorStore = (*store)(nil)

func newStore(outlet *outlet, listed func()) *store {
	return &store{outlet: outlet, listed: listed, objects: map[model.Name][]model.Event{}}
}

// share replaces the values of a record by equal ones that the store already has.
// The reflector holds all records of a list until the list is complete; without
// this a relist would hold the whole cluster in memory twice.
func (s *store) share(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.events, _ = source.Diff(s.objects[r.name()], r.events)
}

// Add stores an object, new or not.
func (s *store) Add(obj any) error {
	r, err := recordOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	events, changes := source.Diff(s.objects[r.name()], r.events)
	remember(s.objects, r, events)
	s.outlet.update(changes)
	return nil
}

// Update stores an object, new or not.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete reverts the events of an object.
func (s *store) Delete(obj any) error {
	r, err := recordOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, changes := source.Diff(s.objects[r.name()], nil)
	delete(s.objects, r.name())
	s.outlet.update(changes)
	return nil
}

// Replace stores a complete list. All differences are passed on together.
func (s *store) Replace(list []any, _ string) error {
	records := make([]*record, len(list))
	for i, obj := range list {
		r, err := recordOf(obj)
		if err != nil {
			return err
		}
		records[i] = r
	}
	s.replace(records)
	s.listed()
	return nil
}

// forget reverts the events of all objects.
func (s *store) forget() { s.replace(nil) }

func (s *store) replace(records []*record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[model.Name][]model.Event, len(records))
	var all []model.Event
	for _, r := range records {
		events, changes := source.Diff(s.objects[r.name()], r.events)
		delete(s.objects, r.name())
		remember(next, r, events)
		all = append(all, changes...)
	}
	for _, gone := range s.objects {
		_, changes := source.Diff(gone, nil)
		all = append(all, changes...)
	}
	s.objects = next
	s.outlet.update(all)
}

// Resync does nothing: the sink keeps what it got.
func (s *store) Resync() error { return nil }

func recordOf(obj any) (*record, error) {
	r, ok := obj.(*record)
	if !ok {
		return nil, fmt.Errorf("a %T is no record", obj)
	}
	return r, nil
}

// remember keeps the events of an object, under a name that shares its memory
// with the model. An object without events is not kept.
func remember(objects map[model.Name][]model.Event, r *record, events []model.Event) {
	if len(events) == 0 {
		delete(objects, r.name())
		return
	}
	name := model.Name{
		Namespace: unique.Make(r.Namespace).Value(),
		Name:      unique.Make(r.Name).Value(),
	}
	objects[name] = events
}
