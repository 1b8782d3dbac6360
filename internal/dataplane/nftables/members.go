package nftables

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/nft"
)

// members keeps a set that frontends share: how many want each of its elements,
// and whether the kernel has it. K is what an element stands for.
type members[K comparable] struct {
	set     string
	key     func(*arena, K) []byte
	decode  func(*decoder) K
	compare func(a, b K) int
	of      map[K]*member[K]
	// touched are the elements to look at when the kernel is brought in line.
	// Those before addFrom are not missing any more, those before removeFrom not
	// surplus: there can be very many, which are written bit by bit.
	touched             []*member[K]
	addFrom, removeFrom int
	present             int // how many elements the kernel has
	// adding and removing are how many add and remove wrote last.
	adding, removing int
}

type member[K comparable] struct {
	what             K
	wanted           int32
	present, touched bool
}

// memberSet is a members of any kind.
type memberSet interface {
	name() string
	// add writes the addition of up to room elements and returns how many it
	// wrote; added notes that they are there. The same for remove and removed.
	add(b *nft.Batch, t nft.Table, a *arena, room int) int
	added()
	remove(b *nft.Batch, t nft.Table, a *arena, room int) int
	removed()
	// missing and surplus count what the kernel lacks and what nobody wants any
	// more, up to a limit.
	missing(limit int) int
	surplus(limit int) int
	// learn takes over whether the kernel has the element with that key. It returns
	// false for a key that can not be ours.
	learn(l *layout, key []byte, present bool) bool
	// keys are those that the kernel has, in any order.
	keys(*arena) []nft.Element
	// elements are all that are wanted, in order.
	elements(*arena) []nft.Element
}

// newAddresses makes a set of addresses, for about that many.
func newAddresses(set string, key func(*arena, netip.Addr) []byte, decode func(*decoder) netip.Addr, size int) *members[netip.Addr] {
	return &members[netip.Addr]{set: set, key: key, decode: decode, compare: netip.Addr.Compare, of: make(map[netip.Addr]*member[netip.Addr], size)}
}

// newAffineEndpoints makes a set of endpoints that clients can be sent back to.
func newAffineEndpoints(set string) *members[affineEndpoint] {
	return &members[affineEndpoint]{set: set, key: (*arena).affineEndpoint, decode: (*decoder).affineEndpoint, compare: affineEndpoint.compare,
		of: map[affineEndpoint]*member[affineEndpoint]{}}
}

func (m *members[K]) name() string { return m.set }

func (m *members[K]) hold(what K)    { m.change(what, func(e *member[K]) { e.wanted++ }) }
func (m *members[K]) release(what K) { m.change(what, func(e *member[K]) { e.wanted-- }) }

// found notes that the kernel has an element.
func (m *members[K]) found(what K) {
	m.present++
	m.change(what, func(e *member[K]) { e.present = true })
}

func (m *members[K]) learn(l *layout, key []byte, present bool) bool {
	d := l.decode(key)
	what := m.decode(d)
	if !d.done() {
		return false
	}
	if present && !m.has(what) {
		m.found(what)
	} else if !present && m.has(what) {
		m.present--
		m.change(what, func(e *member[K]) { e.present = false })
	}
	return true
}

func (m *members[K]) change(what K, f func(*member[K])) {
	e := m.of[what]
	if e == nil {
		e = &member[K]{what: what}
		m.of[what] = e
	}
	f(e)
	if !e.touched && (e.wanted > 0) != e.present {
		e.touched = true
		m.touched = append(m.touched, e)
	}
	m.addFrom, m.removeFrom = 0, 0
}

// has reports whether the kernel has an element.
func (m *members[K]) has(what K) bool {
	e := m.of[what]
	return e != nil && e.present
}

func (m *members[K]) eachMissing() iter.Seq[*member[K]] {
	return m.from(&m.addFrom, func(e *member[K]) bool { return e.wanted > 0 && !e.present })
}

func (m *members[K]) eachSurplus() iter.Seq[*member[K]] {
	return m.from(&m.removeFrom, func(e *member[K]) bool { return e.wanted == 0 && e.present })
}

// from walks over what was touched, and moves the start of the next walk past
// what is in line at its beginning.
func (m *members[K]) from(start *int, is func(*member[K]) bool) iter.Seq[*member[K]] {
	return func(yield func(*member[K]) bool) {
		for *start < len(m.touched) && !is(m.touched[*start]) {
			*start++
		}
		for _, e := range m.touched[*start:] {
			if is(e) && !yield(e) {
				return
			}
		}
	}
}

func (m *members[K]) missing(limit int) int { return count(m.eachMissing(), limit) }
func (m *members[K]) surplus(limit int) int { return count(m.eachSurplus(), limit) }

func count[T any](list iter.Seq[T], limit int) (n int) {
	for range list {
		if n++; n >= limit {
			break
		}
	}
	return n
}

func (m *members[K]) add(b *nft.Batch, t nft.Table, a *arena, room int) int {
	m.adding = m.write(m.eachMissing(), room, func(e *nft.Element) { b.AddElement(t, m.set, e, 0) }, a)
	return m.adding
}

func (m *members[K]) remove(b *nft.Batch, t nft.Table, a *arena, room int) int {
	m.removing = m.write(m.eachSurplus(), room, func(e *nft.Element) { b.DeleteElement(t, m.set, e, 0) }, a)
	return m.removing
}

func (m *members[K]) write(list iter.Seq[*member[K]], room int, f func(*nft.Element), a *arena) int {
	n := 0
	for e := range list {
		if n == room {
			break
		}
		f(&nft.Element{Key: m.key(a, e.what)})
		n++
	}
	return n
}

func (m *members[K]) added() {
	m.wrote(m.eachMissing(), m.adding, true)
	m.present += m.adding
	m.adding = 0
}

func (m *members[K]) removed() {
	m.wrote(m.eachSurplus(), m.removing, false)
	m.present -= m.removing
	m.removing = 0
}

func (m *members[K]) wrote(list iter.Seq[*member[K]], n int, present bool) {
	for e := range list {
		if n--; n < 0 {
			break
		}
		e.present = present
	}
	m.tidy()
}

// tidy forgets what was touched once all of it is in line.
func (m *members[K]) tidy() {
	if m.missing(1) > 0 || m.surplus(1) > 0 {
		return
	}
	for _, e := range m.touched {
		if e.touched = false; e.wanted == 0 {
			delete(m.of, e.what)
		}
	}
	m.touched, m.addFrom, m.removeFrom = nil, 0, 0
}

// lookUp finds out which of very many elements the kernel has, whose number is given.
// When those that are wanted are not all, it dumps the set; what in it can not be ours
// is handed to junk.
func (m *members[K]) lookUp(ctx context.Context, c *nft.Conn, t nft.Table, l *layout, count int, junk func(*nft.Element)) error {
	var a arena
	keys, wanted := make([]nft.Element, 0, len(m.of)), make([]*member[K], 0, len(m.of))
	for what, e := range m.of {
		keys, wanted = append(keys, nft.Element{Key: m.key(&a, what)}), append(wanted, e)
	}
	err := c.Lookup(ctx, t, m.set, keys, func(i int, e *nft.Element) error {
		if e != nil {
			m.found(wanted[i].what)
		}
		return nil
	})
	if err != nil || m.present == count {
		return err
	}
	err = c.Elements(ctx, t, m.set, func(e *nft.Element) error {
		if !m.learn(l, e.Key, true) {
			junk(e)
		}
		return nil
	})
	if errors.Is(err, nft.ErrInterrupted) {
		err = nil // what others do to our table meanwhile is noticed
	}
	return err
}

// all are those that the kernel has.
func (m *members[K]) all() map[K]struct{} {
	out := make(map[K]struct{}, m.present)
	for what, e := range m.of {
		if e.present {
			out[what] = struct{}{}
		}
	}
	return out
}

func (m *members[K]) keys(a *arena) []nft.Element {
	out := make([]nft.Element, 0, m.present)
	for what, e := range m.of {
		if e.present {
			out = append(out, nft.Element{Key: m.key(a, what)})
		}
	}
	return out
}

func (m *members[K]) elements(a *arena) []nft.Element {
	var out []nft.Element
	for _, what := range slices.SortedFunc(maps.Keys(m.of), m.compare) {
		out = append(out, nft.Element{Key: m.key(a, what)})
	}
	return out
}

// affineEndpoint is an endpoint that clients of a service port can be sent back
// to.
type affineEndpoint struct {
	port affinityID
	netip.AddrPort
}

func (e affineEndpoint) compare(o affineEndpoint) int {
	return cmp.Or(e.AddrPort.Compare(o.AddrPort), cmp.Compare(e.port, o.port))
}
