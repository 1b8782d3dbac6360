package plan

import (
	"net/netip"

	"sluice/internal/model"
)

// NodePortKey returns the key of a node port.
func NodePortKey(f model.Family, port uint16, p model.Protocol) Key {
	return Key{unspecified(f), port, p}
}

func unspecified(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// Lookup finds the frontend that packets to an address and port meet in the
// kernel: that of the address itself, or else a node port if node ports answer
// there. If that depends on the routing table, local is called to ask it.
func (d *Desired) Lookup(to Key, local func(netip.Addr) bool) (f *Frontend, found bool) {
	return Lookup(d.Frontends, &d.Settings, to, local)
}

// Lookup is Desired.Lookup in other values by frontend.
func Lookup[T any](frontends map[Key]T, s *Settings, to Key, local func(netip.Addr) bool) (f T, found bool) {
	if f, found = frontends[to]; found {
		return f, true
	}
	nodePort, found := frontends[NodePortKey(to.Family(), to.Port, to.Protocol)]
	if !found || !s.HasNodePorts(to.Addr, local) {
		return f, false
	}
	return nodePort, true
}
