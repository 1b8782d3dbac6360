package plan

import (
	"net/netip"

	"sluice/internal/model"
)

// NodePortKey returns the key of a node port.
func NodePortKey(f model.Family, port uint16, p model.Protocol) Key {
	return Key{Addr: unspecified(f), Port: port, Protocol: p}
}

func unspecified(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// loopback is the address of a family that programs on the node use for it.
func loopback(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// Lookup finds the frontend that packets to an address and port meet in the
// kernel: that of the address itself, or else a node port if node ports answer
// there, or else a port range of the address. If that depends on the routing table, local is called to ask it.
func (d *Desired) Lookup(to Key, local func(netip.Addr) bool) (f *Frontend, found bool) {
	return Lookup(d.Frontends, d.Ranges, &d.Settings, to, local)
}

// Lookup is Desired.Lookup in other values by frontend.
func Lookup[T any](frontends map[Key]T, ranges Ranges, s *Settings, to Key, local func(netip.Addr) bool) (f T, found bool) {
	if f, found = frontends[to]; found {
		return f, true
	}
	nodePort, found := frontends[NodePortKey(to.Family(), to.Port, to.Protocol)]
	if found && s.HasNodePorts(to.Addr, local) {
		return nodePort, true
	}
	if key, is := ranges.Find(to); is {
		f, found = frontends[key]
		return f, found
	}
	return f, false
}
