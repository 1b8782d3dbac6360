package nftables

import (
	"iter"
	"net/netip"

	"sluice/internal/nft"
)

// members keeps a set of addresses: how many want each, and whether the kernel
// has it.
type members struct {
	set string
	key func(*arena, netip.Addr) []byte
	of  map[netip.Addr]*member
	// touched are the addresses to look at when the kernel is brought in line.
	// Those before addFrom are not missing any more, those before removeFrom not
	// surplus: there can be very many, which are written bit by bit.
	touched             []*member
	addFrom, removeFrom int
	present             int // how many addresses the kernel has
	// adding and removing are how many add and remove wrote last.
	adding, removing int
}

type member struct {
	ip               netip.Addr
	wanted           int32
	present, touched bool
}

// newMembers makes a set for about that many addresses.
func newMembers(set string, key func(*arena, netip.Addr) []byte, size int) *members {
	return &members{set: set, key: key, of: make(map[netip.Addr]*member, size)}
}

func (m *members) hold(ip netip.Addr)    { m.change(ip, func(e *member) { e.wanted++ }) }
func (m *members) release(ip netip.Addr) { m.change(ip, func(e *member) { e.wanted-- }) }

// found notes that the kernel has an address.
func (m *members) found(ip netip.Addr) {
	m.present++
	m.change(ip, func(e *member) { e.present = true })
}

func (m *members) change(ip netip.Addr, f func(*member)) {
	e := m.of[ip]
	if e == nil {
		e = &member{ip: ip}
		m.of[ip] = e
	}
	f(e)
	if !e.touched && (e.wanted > 0) != e.present {
		e.touched = true
		m.touched = append(m.touched, e)
	}
	m.addFrom, m.removeFrom = 0, 0
}

// has tells whether the kernel has an address.
func (m *members) has(ip netip.Addr) bool {
	e := m.of[ip]
	return e != nil && e.present
}

// missing are the addresses that the kernel lacks, surplus those that nobody
// wants any more.
func (m *members) missing() iter.Seq[*member] {
	return m.from(&m.addFrom, func(e *member) bool { return e.wanted > 0 && !e.present })
}

func (m *members) surplus() iter.Seq[*member] {
	return m.from(&m.removeFrom, func(e *member) bool { return e.wanted == 0 && e.present })
}

// from walks over what was touched, and moves the start of the next walk past
// what is in line at its beginning.
func (m *members) from(start *int, is func(*member) bool) iter.Seq[*member] {
	return func(yield func(*member) bool) {
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

// add writes the addition of up to room addresses, and tells how many it wrote.
func (m *members) add(b *nft.Batch, t nft.Table, a *arena, room int) int {
	m.adding = m.write(m.missing(), room, func(e *nft.Element) { b.AddElement(t, m.set, e, 0) }, a)
	return m.adding
}

// remove writes the removal of up to room addresses.
func (m *members) remove(b *nft.Batch, t nft.Table, a *arena, room int) int {
	m.removing = m.write(m.surplus(), room, func(e *nft.Element) { b.DeleteElement(t, m.set, e, 0) }, a)
	return m.removing
}

func (m *members) write(list iter.Seq[*member], room int, f func(*nft.Element), a *arena) int {
	n := 0
	for e := range list {
		if n == room {
			break
		}
		f(&nft.Element{Key: m.key(a, e.ip)})
		n++
	}
	return n
}

// added notes that what add wrote took effect, removed the same of remove.
func (m *members) added() {
	m.wrote(m.missing(), m.adding, true)
	m.present += m.adding
	m.adding = 0
}

func (m *members) removed() {
	m.wrote(m.surplus(), m.removing, false)
	m.present -= m.removing
	m.removing = 0
}

func (m *members) wrote(list iter.Seq[*member], n int, present bool) {
	for e := range list {
		if n--; n < 0 {
			break
		}
		e.present = present
	}
	m.tidy()
}

// tidy forgets what was touched once all of it is in line.
func (m *members) tidy() {
	for range m.missing() {
		return
	}
	for range m.surplus() {
		return
	}
	for _, e := range m.touched {
		if e.touched = false; e.wanted == 0 {
			delete(m.of, e.ip)
		}
	}
	m.touched, m.addFrom, m.removeFrom = nil, 0, 0
}
