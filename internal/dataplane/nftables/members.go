package nftables

import (
	"iter"
	"net/netip"

	"sluice/internal/nft"
)

// members keeps a set of addresses: who wants each, and what the kernel has.
type members struct {
	set     string
	key     func(*arena, netip.Addr) []byte
	want    map[netip.Addr]int
	present map[netip.Addr]struct{}
	// touched are the addresses whose want or presence changed since the
	// kernel was last brought in line.
	touched map[netip.Addr]struct{}
}

func newMembers(set string, key func(*arena, netip.Addr) []byte) *members {
	return &members{
		set:     set,
		key:     key,
		want:    map[netip.Addr]int{},
		present: map[netip.Addr]struct{}{},
		touched: map[netip.Addr]struct{}{},
	}
}

func (m *members) hold(ip netip.Addr) {
	if m.want[ip]++; m.want[ip] == 1 {
		m.touched[ip] = struct{}{}
	}
}

func (m *members) release(ip netip.Addr) {
	if m.want[ip]--; m.want[ip] == 0 {
		delete(m.want, ip)
		m.touched[ip] = struct{}{}
	}
}

// found notes that the kernel has an address.
func (m *members) found(ip netip.Addr) {
	m.present[ip] = struct{}{}
	m.touched[ip] = struct{}{}
}

// missing are the addresses that the kernel lacks, surplus those that nobody
// wants any more.
func (m *members) missing() iter.Seq[netip.Addr] { return m.differing(true) }
func (m *members) surplus() iter.Seq[netip.Addr] { return m.differing(false) }

func (m *members) differing(wanted bool) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for ip := range m.touched {
			_, want := m.want[ip]
			_, have := m.present[ip]
			if want == wanted && have != wanted && !yield(ip) {
				return
			}
		}
	}
}

func (m *members) add(b *nft.Batch, t nft.Table, a *arena) {
	for ip := range m.missing() {
		b.AddElement(t, m.set, &nft.Element{Key: m.key(a, ip)}, 0)
	}
}

func (m *members) added() {
	for ip := range m.missing() {
		m.present[ip] = struct{}{}
	}
}

func (m *members) remove(b *nft.Batch, t nft.Table, a *arena) {
	for ip := range m.surplus() {
		b.DeleteElement(t, m.set, &nft.Element{Key: m.key(a, ip)}, 0)
	}
}

func (m *members) removed() {
	for ip := range m.surplus() {
		delete(m.present, ip)
	}
	clear(m.touched)
}
