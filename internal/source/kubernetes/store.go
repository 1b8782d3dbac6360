package kubernetes

import (
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"

	"sluice/internal/model"
	"sluice/internal/source"
)

// store receives the objects of one kind: those of a list one by one, as they are decoded, and
// changes from a reflector. It passes on what changed, and keeps just enough to determine that: the
// events of each object, whose values the sink holds too.
//
// The objects of the first list are passed on as they come, because nobody acts on them before it is
// complete. What a later one changes is passed on together.
type store struct {
	gate   *sinkGate
	room   *room
	listed func(missing) // called when a list is complete, with what of it had no room
	full   func(missing) // called when a change had no room

	mu      sync.Mutex
	objects map[model.Name][]model.Event // without those that led to no events
	known   bool                         // a list was complete
	current *listing                     // nil before the first
	unsent  []model.Event                // of the first list
	missing missing                      // what had no room since the last list began
	charged int64                        // of room
}

// batchSize is how many events of the first list are passed on together.
const batchSize = 256

var _ cache.ReflectorStore = (*store)(nil)

func newStore(gate *sinkGate, room *room, listed, full func(missing)) *store {
	return &store{gate: gate, room: room, listed: listed, full: full, objects: map[model.Name][]model.Event{}}
}

// admit returns the events of an object, and how they differ from those before: those before, if there is
// no room for the new ones. It returns how much room they take in addition, or would.
func (s *store) admit(name model.Name, next []model.Event) (events, changes []model.Event, bytes int64, ok bool) {
	old := s.objects[name]
	bytes = source.Size(next) - source.Size(old)
	if !s.room.take(bytes) {
		return old, nil, bytes, false
	}
	s.charged += bytes
	events, changes = source.Diff(old, next)
	return events, changes, bytes, true
}

// recharge charges what takes that much room now.
func (s *store) recharge(bytes int64) {
	s.room.add(bytes - s.charged)
	s.charged = bytes
}

// waits reports whether there is room now for what had none.
func (s *store) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missing.objects > 0 && s.room.fits(s.missing.bytes)
}

// listing is a list that arrives. One that was broken off is never complete.
type listing struct {
	store *store
	// objects are those that arrived. Of the first list they are the store's own, and this is nil.
	objects map[model.Name][]model.Event
	charged int64 // in addition to what the store's take
}

// begin returns a new listing. What arrives of those before it is ignored.
func (s *store) begin() *listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send()
	if s.current != nil {
		s.recharge(s.charged - s.current.charged)
	}
	s.current, s.missing = &listing{store: s}, missing{}
	if s.known || len(s.objects) > 0 {
		s.current.objects = make(map[model.Name][]model.Event, len(s.objects))
	}
	return s.current
}

// add adds an object to the list. Values that are equal to those known are not kept, so that a list
// that comes again does not hold the whole cluster in memory twice.
func (l *listing) add(name model.Name, events []model.Event) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != l {
		return
	}
	events, changes, bytes, ok := s.admit(name, events)
	if !ok {
		s.missing.objects++
		s.missing.bytes += bytes
	}
	if l.objects != nil {
		remember(l.objects, name, events)
	}
	if !s.known {
		remember(s.objects, name, events)
		s.pass(changes)
	} else if ok {
		l.charged += bytes
	}
}

// remove removes an object that was deleted while the list arrived.
func (l *listing) remove(name model.Name) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != l {
		return
	}
	delete(l.objects, name)
	if !s.known {
		_, changes, _, _ := s.admit(name, nil)
		delete(s.objects, name)
		s.pass(changes)
	}
}

// pass passes events of the first list on, many at a time.
func (s *store) pass(events []model.Event) {
	if s.unsent = append(s.unsent, events...); len(s.unsent) >= batchSize {
		s.send()
	}
}

func (s *store) send() {
	s.gate.update(s.unsent)
	s.unsent = s.unsent[:0]
}

// Add stores an object, new or not.
func (s *store) Add(obj any) error {
	r, err := recordOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	events, changes, bytes, ok := s.admit(r.name(), r.events)
	remember(s.objects, r.name(), events)
	s.gate.update(changes)
	if !ok {
		s.missing = missing{max(s.missing.objects, 1), max(s.missing.bytes, bytes)}
		s.full(s.missing)
	}
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
	_, changes, _, _ := s.admit(r.name(), nil)
	delete(s.objects, r.name())
	s.gate.update(changes)
	return nil
}

// Replace says that the current listing is complete. Its objects have arrived already.
func (s *store) Replace(list []any, _ string) error {
	if len(list) > 0 {
		return fmt.Errorf("%d objects of a list did not arrive one by one", len(list))
	}
	left, err := s.complete()
	if err != nil {
		return err
	}
	s.listed(left)
	return nil
}

// complete passes on how the current listing differs from what was known before, and returns what of it
// had no room.
func (s *store) complete() (missing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return missing{}, errors.New("no list has begun")
	}
	if next := s.current.objects; next != nil {
		s.exchange(next)
	}
	s.send()
	s.known, s.current, s.unsent = true, nil, nil
	return s.missing, nil
}

// forget reverts the events of all objects.
func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchange(map[model.Name][]model.Event{})
	s.current, s.known, s.missing = nil, false, missing{}
}

// exchange replaces all objects. All differences are passed on together.
func (s *store) exchange(next map[model.Name][]model.Event) {
	s.send()
	var all []model.Event
	bytes := int64(0)
	for name, events := range next {
		bytes += source.Size(events)
		_, changes := source.Diff(s.objects[name], events)
		all = append(all, changes...)
	}
	for name, gone := range s.objects {
		if _, stays := next[name]; !stays {
			_, changes := source.Diff(gone, nil)
			all = append(all, changes...)
		}
	}
	s.objects = next
	s.recharge(bytes)
	s.gate.update(all)
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

// remember keeps the events of an object, under a name that shares its memory with the model if
// possible. An object without events is not kept.
func remember(objects map[model.Name][]model.Event, name model.Name, events []model.Event) {
	if len(events) == 0 {
		delete(objects, name)
		return
	}
	if own := source.NameIn(events[0]); own == name {
		name = own
	}
	objects[name] = events
}
