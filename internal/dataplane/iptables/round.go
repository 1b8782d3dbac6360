package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// side is one family: its chains as they should be, and as they are.
type side struct {
	family model.Family
	world  *world
	tables []*table // in the order of tableNames
	// frontends are those that are laid out. mu guards them against those who
	// look while one writes.
	mu        sync.Mutex
	frontends map[plan.Key]*plan.Frontend
}

func newSide(f model.Family, can features) *side {
	s := &side{family: f, world: newWorld(f, can), frontends: map[plan.Key]*plan.Frontend{}}
	for _, name := range tableNames {
		s.tables = append(s.tables, newTable(Table{f, name}))
	}
	return s
}

// item is the change of a service port.
type item struct {
	id portID
	// frontends are what it should have, nil for none.
	frontends []*plan.Frontend
	old       *group
}

// items turns frontends that are new, changed or gone into changes of service
// ports.
func (s *side) items(set []*plan.Frontend, removed []plan.Key) []*item {
	byID := map[portID]map[plan.Key]*plan.Frontend{}
	of := func(id portID) map[plan.Key]*plan.Frontend {
		if byID[id] == nil {
			byID[id] = map[plan.Key]*plan.Frontend{}
			if g := s.world.groups[id]; g != nil {
				for _, f := range g.frontends {
					byID[id][f.Key] = f
				}
			}
		}
		return byID[id]
	}
	for _, k := range removed {
		if old := s.frontends[k]; old != nil {
			delete(of(idOf(old)), k)
		}
	}
	for _, f := range set {
		if f.Family() != s.family {
			continue
		}
		if old := s.frontends[f.Key]; old != nil && idOf(old) != idOf(f) {
			delete(of(idOf(old)), f.Key)
		}
		of(idOf(f))[f.Key] = f
	}
	items := make([]*item, 0, len(byID))
	for id, frontends := range byID {
		items = append(items, &item{id: id, frontends: slices.Collect(maps.Values(frontends)), old: s.world.groups[id]})
	}
	// What is programmed must not depend on chance when some of it fails.
	slices.SortFunc(items, func(a, b *item) int { return a.id.compare(b.id) })
	return items
}

// put makes the change in the world.
func (s *side) put(it *item) {
	var g *group
	if len(it.frontends) > 0 {
		g = newGroup(it.id, it.frontends, s.world.env)
	}
	s.exchange(it.id, g)
}

// undo takes the change back.
func (s *side) undo(it *item) { s.exchange(it.id, it.old) }

func (s *side) exchange(id portID, g *group) {
	s.account(s.world.groups[id], g)
	s.world.replace(id, g)
}

// account follows with frontends a group that takes the place of another.
func (s *side) account(before, after *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before != nil {
		for _, f := range before.frontends {
			if now := s.frontends[f.Key]; now != nil && idOf(now) == before.id {
				delete(s.frontends, f.Key)
			}
		}
	}
	if after != nil {
		for _, f := range after.frontends {
			s.frontends[f.Key] = f
		}
	}
}

// frontend is the one with a key, nil if there is none. Anybody may ask.
func (s *side) frontend(k plan.Key) *plan.Frontend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frontends[k]
}

// round is one piece of writing.
type round struct {
	d      *Dataplane
	result dataplane.Result
	failed map[plan.Key]error
	// partial says that it is a change and not a reconcile.
	partial bool
	// refusals counts what iptables-restore refused.
	refusals int
	// total is how many frontends there are to write, done how many of them are
	// in the tables of their family.
	total, done int
}

// tell tells whoever wants to know how far it is.
func (r *round) tell() {
	if r.d.progress != nil {
		r.d.progress(dataplane.Progress{Done: r.done, Total: r.total, Transactions: r.result.Transactions})
	}
}

// finish notes that so many frontends more are written.
func (r *round) finish(n int) {
	r.done += n
	r.tell()
}

// patience is how many refusals there may be in a round. More are hardly the
// frontends' fault.
const patience = 500

// refusedError is the refusal of an input by iptables-restore.
type refusedError struct {
	keys []plan.Key // those it is about, if that can be told
	err  error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// program carries items out. Those that are refused are left out and noted.
func (r *round) program(ctx context.Context, s *side, items []*item) error {
	for _, it := range items {
		s.put(it)
	}
	return r.settle(ctx, s, items)
}

// settle writes items that were put.
func (r *round) settle(ctx context.Context, s *side, items []*item) error {
	for {
		err := r.flush(ctx, s)
		var refused *refusedError
		if !errors.As(err, &refused) {
			return err
		}
		if !r.leaveOut(s, items, refused) {
			return r.bisect(ctx, s, items, refused)
		}
	}
}

// leaveOut takes the frontends that a refusal is about out of the items, and
// tells whether there were any.
func (r *round) leaveOut(s *side, items []*item, refused *refusedError) bool {
	some := false
	for _, it := range items {
		before := len(it.frontends)
		it.frontends = slices.DeleteFunc(it.frontends, func(f *plan.Frontend) bool {
			bad := slices.Contains(refused.keys, f.Key)
			if bad {
				r.fail(f.Key, refused)
			}
			return bad
		})
		if len(it.frontends) < before {
			some = true
			s.put(it)
		}
	}
	return some
}

func (r *round) fail(k plan.Key, err error) {
	r.failed[k] = fmt.Errorf("iptables refused %s: %w", k, err)
}

// bisect finds out which items are refused when iptables-restore did not say.
func (r *round) bisect(ctx context.Context, s *side, items []*item, refused error) error {
	for _, it := range items {
		s.undo(it)
	}
	// Without all of them it must work, or they are not the cause.
	if err := r.flush(ctx, s); err != nil {
		return err
	}
	if len(items) == 1 {
		for _, f := range items[0].frontends {
			r.fail(f.Key, refused)
		}
		if items[0].old != nil {
			for _, f := range items[0].old.frontends {
				r.fail(f.Key, refused)
			}
		}
		return nil
	}
	half := len(items) / 2
	if err := r.program(ctx, s, items[:half]); err != nil {
		return err
	}
	return r.program(ctx, s, items[half:])
}

// flush writes what is laid out and not in the kernel yet. The first table is
// nat: a frontend is refused only after it leads nowhere, and no longer once it
// leads somewhere.
func (r *round) flush(ctx context.Context, s *side) error {
	s.world.layout()
	for _, t := range s.tables {
		out := s.world.out[t.Name]
		r.d.note(func() {
			for name := range out.dropped {
				t.surplus[name] = true
			}
			for name := range out.byName {
				delete(t.surplus, name)
				delete(t.stuck, name)
			}
		})
		if err := r.write(ctx, t, out); err != nil {
			return err
		}
		s.world.out[t.Name] = newPages()
	}
	return nil
}

// write writes the chains of a table. Very many that are new go ahead, while
// nothing leads to them. Chains that are no longer wanted are removed with the
// others, or afterwards if there are very many or if it is refused: somebody
// else's rule may lead to one.
func (r *round) write(ctx context.Context, t *table, out *pages) error {
	most := r.d.batch
	for _, in := range t.ahead(out, most) {
		if err := r.explain(in, r.restore(ctx, t, in)); err != nil {
			return err
		}
	}
	if len(t.removable()) <= most {
		in := t.write(out, true)
		err := r.restore(ctx, t, in)
		if len(in.gone) == 0 || !isFailure(err) {
			return r.explain(in, err)
		}
	}
	in := t.write(out, false)
	if err := r.explain(in, r.restore(ctx, t, in)); err != nil {
		return err
	}
	return r.remove(ctx, t, most)
}

// explain finds out whom a failure is about.
func (r *round) explain(in *input, err error) error {
	var f *failure
	if !errors.As(err, &f) || errors.Is(err, ErrLocked) {
		return err
	}
	if r.refusals++; r.refusals > patience {
		return fmt.Errorf("more than %d writes were refused, the last: %w", patience, err)
	}
	return &refusedError{in.ownersOf(f.line()), err}
}

func isFailure(err error) bool {
	var f *failure
	return errors.As(err, &f) && !errors.Is(err, ErrLocked)
}

// remove removes surplus chains, so many at a time. Those that somebody else's
// rule leads to stay, empty, and are tried again with the next change.
func (r *round) remove(ctx context.Context, t *table, most int) error {
	names := t.removable()
	for batch := range slices.Chunk(names, most) {
		empty := newPages()
		for _, name := range batch {
			empty.begin(name)
		}
		if err := r.restore(ctx, t, t.write(empty, false)); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(names, most) {
		if err := r.removeEmpty(ctx, t, batch); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) removeEmpty(ctx context.Context, t *table, names []string) error {
	if len(names) == 0 {
		return nil
	}
	in := &input{gone: names}
	in.line("*", t.Name)
	for _, name := range names {
		in.line("-X ", name)
	}
	in.line("COMMIT")
	err := r.restore(ctx, t, in)
	var f *failure
	switch {
	case err == nil || !isFailure(err):
		return err
	case len(names) == 1:
		r.giveUp(t, names[0], err)
		return nil
	}
	if errors.As(err, &f) && f.line() >= 2 && f.line() < 2+len(names) {
		at := f.line() - 2 // the culprit's
		r.giveUp(t, names[at], err)
		return r.removeEmpty(ctx, t, slices.Concat(names[:at], names[at+1:]))
	}
	half := len(names) / 2
	if err := r.removeEmpty(ctx, t, names[:half]); err != nil {
		return err
	}
	return r.removeEmpty(ctx, t, names[half:])
}

// giveUp leaves a chain alone until somebody else has written.
func (r *round) giveUp(t *table, name string, err error) {
	r.d.logger.Info("A chain that is no longer used cannot be removed, another rule may lead to it",
		"table", t.String(), "chain", name, "reason", err.Error())
	r.d.note(func() {
		delete(t.surplus, name)
		t.stuck[name] = true
	})
}

// restore runs iptables-restore.
func (r *round) restore(ctx context.Context, t *table, in *input) error {
	if in.empty() {
		return nil
	}
	if err := r.d.run(ctx, t, in, r.partial); err != nil {
		return err
	}
	r.result.Transactions++
	r.result.Elements += in.rules
	r.tell()
	return nil
}
