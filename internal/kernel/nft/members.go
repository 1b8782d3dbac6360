//go:build linux

package nft

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
)

// Members mirrors a set whose elements have reference counts: an element belongs
// in the set while it is held at least once. K is what an element stands for.
//
// Hold and Release change what belongs there. Add and Remove write the difference to
// what the kernel has, as much as there is room for in a transaction, and Added and
// Removed record that it took effect.
type Members[K comparable] struct {
	MemberType[K]
	table Table
	set   string
	// settled are the elements that are held and present, with how often they are held. There can be
	// very many, so that they take little memory. The others are in unsettled.
	settled   map[K]int32
	unsettled map[K]*member[K]
	// changed are the elements that may be missing or surplus: none before addFrom is
	// missing, and none before removeFrom is surplus. There can be very many, for
	// many transactions.
	changed             []*member[K]
	addFrom, removeFrom int
	present             int // how many elements the kernel has
	// adding and removing are how many Add and Remove wrote last.
	adding, removing int
	// assumed says that elements were taken to be present which may not be.
	assumed bool
}

// MemberType says how elements of Members are encoded and sorted.
type MemberType[K comparable] struct {
	Key     func(*Arena, K) []byte
	Decode  func(*Decoder) K
	Compare func(a, b K) int
}

type member[K comparable] struct {
	what             K
	refs             int32
	present, changed bool
}

func (e *member[K]) missing() bool { return e.refs > 0 && !e.present }
func (e *member[K]) surplus() bool { return e.refs == 0 && e.present }

// NewMembers returns an empty mirror of a set, with room for about size elements.
func NewMembers[K comparable](t Table, set string, typ MemberType[K], size int) *Members[K] {
	return &Members[K]{MemberType: typ, table: t, set: set, settled: make(map[K]int32, size),
		unsettled: map[K]*member[K]{}}
}

// MemberSet is a Members of any type.
type MemberSet interface {
	// Name is that of the set.
	Name() string
	// Add writes up to room missing elements and returns how many. Added records
	// that they are there.
	Add(b *Batch, room int) int
	Added()
	// Remove and Removed do the same for surplus elements.
	Remove(b *Batch, room int) int
	Removed()
	// Missing and Surplus count up to a limit.
	Missing(limit int) int
	Surplus(limit int) int
	// Learn records whether the kernel has the element with a key. It returns false
	// if the key cannot be one of the set.
	Learn(key []byte, present bool) bool
	// Present returns those that the kernel has, in any order.
	Present() []Element
	// Wanted returns those that belong in the set, sorted.
	Wanted() []Element
}

// Name is that of the set.
func (m *Members[K]) Name() string { return m.set }

// Len returns how many elements the kernel has.
func (m *Members[K]) Len() int { return m.present }

// Hold adds a reference to an element.
func (m *Members[K]) Hold(what K) { m.change(what, func(e *member[K]) { e.refs++ }) }

// Release removes a reference to an element.
func (m *Members[K]) Release(what K) { m.change(what, func(e *member[K]) { e.refs-- }) }

// Found records that the kernel has an element, which was not known.
func (m *Members[K]) Found(what K) {
	m.present++
	m.change(what, func(e *member[K]) { e.present = true })
}

// Learn implements MemberSet.
func (m *Members[K]) Learn(key []byte, present bool) bool {
	d := NewDecoder(m.table.Family, key)
	what := m.Decode(&d)
	if !d.Done() {
		return false
	}
	if present && !m.Has(what) {
		m.Found(what)
	} else if !present && m.Has(what) {
		m.present--
		m.change(what, func(e *member[K]) { e.present = false })
	}
	return true
}

func (m *Members[K]) change(what K, f func(*member[K])) {
	e := m.unsettled[what]
	if e == nil {
		refs, settled := m.settled[what]
		now := member[K]{what: what, refs: refs, present: settled}
		if f(&now); settled && now.refs > 0 && now.present {
			m.settled[what] = now.refs
			return
		}
		delete(m.settled, what)
		e = &now
		m.unsettled[what] = e
	} else {
		f(e)
	}
	if !e.changed && (e.missing() || e.surplus()) {
		e.changed = true
		m.changed = append(m.changed, e)
	}
	m.addFrom, m.removeFrom = 0, 0
}

// settle drops what is neither held nor present, and all but how often the rest is held, if nothing is
// missing or surplus.
func (m *Members[K]) settle() {
	if m.Missing(1) > 0 || m.Surplus(1) > 0 {
		return
	}
	for what, e := range m.unsettled {
		if e.refs > 0 {
			m.settled[what] = e.refs
		}
	}
	m.unsettled = map[K]*member[K]{}
	m.changed, m.addFrom, m.removeFrom = nil, 0, 0
}

// Has reports whether the kernel has an element.
func (m *Members[K]) Has(what K) bool {
	if e := m.unsettled[what]; e != nil {
		return e.present
	}
	_, present := m.settled[what]
	return present
}

// refs returns how often an element is held.
func (m *Members[K]) refs(what K) int32 {
	if e := m.unsettled[what]; e != nil {
		return e.refs
	}
	return m.settled[what]
}

// all yields all elements that are known.
func (m *Members[K]) all(yield func(K) bool) {
	for what := range m.settled {
		if !yield(what) {
			return
		}
	}
	for what := range m.unsettled {
		if !yield(what) {
			return
		}
	}
}

func (m *Members[K]) missing() iter.Seq[*member[K]] {
	return m.from(&m.addFrom, (*member[K]).missing)
}

func (m *Members[K]) surplus() iter.Seq[*member[K]] {
	return m.from(&m.removeFrom, (*member[K]).surplus)
}

// from yields changed elements, and advances start to the first of them.
func (m *Members[K]) from(start *int, is func(*member[K]) bool) iter.Seq[*member[K]] {
	return func(yield func(*member[K]) bool) {
		for *start < len(m.changed) && !is(m.changed[*start]) {
			*start++
		}
		for _, e := range m.changed[*start:] {
			if is(e) && !yield(e) {
				return
			}
		}
	}
}

// Missing implements MemberSet.
func (m *Members[K]) Missing(limit int) int { return CountUpTo(m.missing(), limit) }

// Surplus implements MemberSet.
func (m *Members[K]) Surplus(limit int) int { return CountUpTo(m.surplus(), limit) }

// CountUpTo counts values up to a limit.
func CountUpTo[T any](values iter.Seq[T], limit int) (n int) {
	for range values {
		if n++; n >= limit {
			break
		}
	}
	return n
}

// Add implements MemberSet.
func (m *Members[K]) Add(b *Batch, room int) int {
	m.adding = m.write(m.missing(), room, b.AddElement)
	return m.adding
}

// Remove implements MemberSet.
func (m *Members[K]) Remove(b *Batch, room int) int {
	m.removing = m.write(m.surplus(), room, b.DeleteElement)
	return m.removing
}

func (m *Members[K]) write(list iter.Seq[*member[K]], room int, f func(Table, string, *Element, Owner)) (n int) {
	var a Arena
	for e := range list {
		if n == room {
			break
		}
		a = a[:0]
		f(m.table, m.set, &Element{Key: m.Key(&a, e.what)}, 0)
		n++
	}
	return n
}

// Added implements MemberSet.
func (m *Members[K]) Added() {
	m.wrote(m.missing(), m.adding, true)
	m.present += m.adding
	m.adding = 0
}

// Removed implements MemberSet.
func (m *Members[K]) Removed() {
	m.wrote(m.surplus(), m.removing, false)
	m.present -= m.removing
	m.removing = 0
}

func (m *Members[K]) wrote(list iter.Seq[*member[K]], n int, present bool) {
	for e := range list {
		if n--; n < 0 {
			break
		}
		e.present = present
	}
	m.settle()
}

// Find finds out which elements the kernel has, of a set with that many. It looks up
// those that are held, and dumps the set only if there are others. Elements whose
// keys cannot be ones of the set are passed to junk.
func (m *Members[K]) Find(ctx context.Context, c *Conn, count int, junk func(*Element)) error {
	held := slices.Collect(m.all)
	defer m.settle()
	err := c.Lookup(ctx, m.table, m.set, m.encode(held), func(i int, e *Element) error {
		if e != nil {
			m.Found(held[i])
		}
		return nil
	})
	if err != nil || m.present == count {
		return err
	}
	err = c.Elements(ctx, m.table, m.set, func(e *Element) error {
		if !m.Learn(e.Key, true) {
			junk(e)
		}
		return nil
	})
	if errors.Is(err, ErrInterrupted) {
		err = nil // by another table, or by a write to ours that will be noticed
	}
	return err
}

// Assume takes all elements that are held to be present, until Certain is called. Until then Doubt finds
// out which of those to be removed are.
func (m *Members[K]) Assume() {
	for what, e := range m.unsettled {
		if e.missing() {
			m.Found(what)
		}
	}
	m.assumed = true
	m.settle()
}

// Certain records that all assumptions were checked.
func (m *Members[K]) Certain() { m.assumed = false }

// Doubt looks up the surplus elements, if they were only assumed to be present.
func (m *Members[K]) Doubt(ctx context.Context, c *Conn) error {
	if !m.assumed {
		return nil
	}
	var doubtful []K
	for e := range m.surplus() {
		doubtful = append(doubtful, e.what)
	}
	keys := m.encode(doubtful)
	return c.Lookup(ctx, m.table, m.set, keys, func(i int, e *Element) error {
		m.Learn(keys[i].Key, e != nil)
		return nil
	})
}

func (m *Members[K]) encode(list []K) []Element {
	var a Arena
	out := make([]Element, len(list))
	for i, what := range list {
		out[i].Key = m.Key(&a, what)
	}
	return out
}

// All returns what the kernel has.
func (m *Members[K]) All() map[K]struct{} {
	out := make(map[K]struct{}, m.present)
	for what := range m.all {
		if m.Has(what) {
			out[what] = struct{}{}
		}
	}
	return out
}

// Present implements MemberSet.
func (m *Members[K]) Present() []Element { return m.encode(slices.Collect(maps.Keys(m.All()))) }

// Wanted implements MemberSet.
func (m *Members[K]) Wanted() []Element {
	held := slices.SortedFunc(m.all, m.Compare)
	return m.encode(slices.DeleteFunc(held, func(what K) bool { return m.refs(what) == 0 }))
}
