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
	of  map[netip.Addr]member
	// touched are the addresses to look at when the kernel is brought in line.
	touched []netip.Addr
	present int // how many addresses the kernel has
	// adding and removing are how many add and remove wrote last.
	adding, removing int
}

type member struct {
	wanted           int32
	present, touched bool
}

func newMembers(set string, key func(*arena, netip.Addr) []byte) *members {
	return &members{set: set, key: key, of: map[netip.Addr]member{}}
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
	f(&e)
	if !e.touched && (e.wanted > 0) != e.present {
		e.touched = true
		m.touched = append(m.touched, ip)
	}
	m.of[ip] = e
}

// has tells whether the kernel has an address.
func (m *members) has(ip netip.Addr) bool { return m.of[ip].present }

// missing are the addresses that the kernel lacks, surplus those that nobody
// wants any more.
func (m *members) missing() iter.Seq[netip.Addr] {
	return m.differing(func(e member) bool { return e.wanted > 0 && !e.present })
}

func (m *members) surplus() iter.Seq[netip.Addr] {
	return m.differing(func(e member) bool { return e.wanted == 0 && e.present })
}

func (m *members) differing(is func(member) bool) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, ip := range m.touched {
			if is(m.of[ip]) && !yield(ip) {
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

func (m *members) write(ips iter.Seq[netip.Addr], room int, f func(*nft.Element), a *arena) int {
	n := 0
	for ip := range ips {
		if n == room {
			break
		}
		f(&nft.Element{Key: m.key(a, ip)})
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

func (m *members) wrote(ips iter.Seq[netip.Addr], n int, present bool) {
	for ip := range ips {
		if n--; n < 0 {
			break
		}
		e := m.of[ip]
		e.present = present
		m.of[ip] = e
	}
	m.tidy()
}

// tidy forgets what was touched once all of it is in line.
func (m *members) tidy() {
	for range m.differing(func(e member) bool { return (e.wanted > 0) != e.present }) {
		return
	}
	for _, ip := range m.touched {
		e := m.of[ip]
		e.touched = false
		if m.of[ip] = e; e.wanted == 0 {
			delete(m.of, ip)
		}
	}
	m.touched = nil
}
