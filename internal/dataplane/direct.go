package dataplane

import (
	"context"
	"net/netip"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// DirectReturner is a Dataplane that hands packets of clients outside to the node that answers them, and
// answers those that other nodes hand to this one.
type DirectReturner interface {
	// Direct makes the kernel do so, and mends what another program has changed of what it needs. Nil has it
	// stop, and removes all that it left.
	Direct(context.Context, *Direct) error
	// Proofs returns when probes of each kind came back that were sent to these addresses of other nodes, as
	// far as remembered: for ProofTimeout.
	Proofs(context.Context, []netip.Addr) (map[netip.Addr]Proof, error)
	// Handed returns what was handed on since the last call, and at the first one also since an earlier process
	// wrote the rules.
	Handed(context.Context) (Handed, error)
}

// Direct is what DirectReturner.Direct needs.
type Direct struct {
	// Node is the name of this node.
	Node string
	// Device is the interface through which packets come and are handed on, and Index its number.
	Device string
	Index  int
	// IPv4 and IPv6 are this node's own addresses there, by which others know it; invalid without one.
	IPv4, IPv6 netip.Addr
	// NoIPv6 says that the node has no IPv6, and the kernel may have none.
	NoIPv6 bool
	// NodePortIPs are the addresses of this node at which node ports are served.
	NodePortIPs []netip.Addr
	// MasqueradeMark is as in plan.Settings.
	MasqueradeMark uint32
	Peers          []DirectPeer
	// Frontends are those with direct return, and Changed those of them that were not in the last call, or
	// not like this, and those that are gone.
	Frontends map[plan.Key]*plan.Frontend
	Changed   map[plan.Key]struct{}
}

// Addr returns this node's address of a family.
func (d *Direct) Addr(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return d.IPv4
	}
	return d.IPv6
}

// DirectPeer is another node.
type DirectPeer struct {
	Name string
	// IPs are all its addresses.
	IPs        []netip.Addr
	IPv4, IPv6 DirectPath
}

// Path returns the way to the node in a family.
func (p *DirectPeer) Path(f model.Family) DirectPath {
	if f == model.IPv4 {
		return p.IPv4
	}
	return p.IPv6
}

// DirectDelay is for how long packets of a Service that is new to direct return are not handed on: other nodes may not
// know it yet, and would not know the connections that it has.
const DirectDelay = 3 * time.Second

// MAC is the address of a network interface on its link; zero if it is not known.
type MAC = [6]byte

// DirectPath is the way to another node.
type DirectPath struct {
	Addr netip.Addr // by which it is known; invalid if it has none
	MAC  MAC        // zero if it is not known: then nothing is handed to it
	// Usable says that packets are handed to it.
	Usable bool
}

// A probe is a datagram to ProbePort of another node, which sends it back as it is, or, if it is Plain, with its
// own address as the source. Its payload is the address of the node that sent it, and one of these words in
// network order.
const (
	ProbePort         = 9
	ForeignProbe byte = 1
	PlainProbe   byte = 2

	// ProofTimeout is for how long it is remembered that a probe came back.
	ProofTimeout = 150 * time.Second
)

// Proof is when probes came back last; zero if they did not.
type Proof struct{ Foreign, Plain time.Time }

// Handed counts what was handed on.
type Handed struct {
	// On are packets that were handed to other nodes as they came in, Late after they were put together from fragments,
	// and Second to a node that may know their connection.
	On, Late, Second uint64
	// From are connections that other nodes have handed to this one, by the name of each of them.
	From map[string]uint64
}

// ForeignSource is the source of probes of a family that belongs to no node: addresses that nobody can have.
func ForeignSource(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return netip.AddrFrom4([4]byte{192, 0, 0, 8}) // RFC 7600
	}
	return netip.AddrFrom16([16]byte{0: 1, 15: 1}) // of 100::/64, RFC 6666
}
