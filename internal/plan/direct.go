package plan

import (
	"crypto/sha256"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

const (
	// DirectSlots is the size of the lookup table of a frontend with direct return. It is a prime, and can
	// never be another one: nodes with different sizes would pass packets on to different nodes.
	DirectSlots = 1021
	// DirectSeed is the seed of the hash of clients. It differs from HashSeed: a node whose share of clients
	// is chosen by one hash has to choose among its endpoints by another.
	DirectSeed = 0x64697265
)

// DirectReturn is where direct return is switched on for the node, and with whom it is possible.
type DirectReturn struct {
	// Device is the interface through which packets come and are passed on; empty for the one that has the
	// node's own address of the family.
	Device string
	// Nodes are all of the cluster, this one included, sorted by name.
	Nodes []DirectNode
}

// DirectNode is a node of the cluster, for direct return.
type DirectNode struct {
	Name string
	Self bool
	// IPs are its addresses, at which clients may ask for node ports.
	IPs []netip.Addr
	// IPv4 and IPv6 are the ways to its primary address of the family. Their Addr is invalid if it has none.
	IPv4, IPv6 model.Path
}

// Path returns the way to the node in a family.
func (n *DirectNode) Path(f model.Family) model.Path {
	if f == model.IPv4 {
		return n.IPv4
	}
	return n.IPv6
}

// Usable reports whether packets of a family are passed on to the node.
func (n *DirectNode) Usable(f model.Family) bool {
	return !n.Self && n.Path(f).State == model.PathProven
}

// Count counts the other nodes with an address of a family, by what is known of the way to them.
func (r *DirectReturn) Count(f model.Family) map[model.PathState]int {
	out := map[model.PathState]int{}
	for i := range r.Nodes {
		if p := r.Nodes[i].Path(f); !r.Nodes[i].Self && p.Addr.IsValid() {
			out[p.State]++
		}
	}
	return out
}

func (n *DirectNode) same(o *DirectNode) bool {
	return n.Name == o.Name && n.Self == o.Self && slices.Equal(n.IPs, o.IPs) && n.IPv4 == o.IPv4 && n.IPv6 == o.IPv6
}

func (r *DirectReturn) same(o *DirectReturn) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Device == o.Device && slices.EqualFunc(r.Nodes, o.Nodes, func(a, b DirectNode) bool { return a.same(&b) })
}

// Direct says that a node without an endpoint of a frontend passes the packets of clients outside on to one
// that has some, which answers them itself. Which node that is depends on nothing but the client and the
// endpoints, and is the same on every node. Frontends of a service port share it.
//
// A client of a node that packets cannot be passed on to takes the Route of the frontend, masqueraded.
type Direct struct {
	// Nodes are those with endpoints in the cluster pool, sorted by name.
	Nodes []NodeShare
	// ByAddress says that all connections of a client go to the same node, whatever port they come from.
	ByAddress bool
	// Local is where this node leads connections that are its own by their slot, or that another node
	// passed on; they are not masqueraded. Nil without endpoints here: they take the Route, masqueraded.
	Local *Route
}

// NodeShare is a node, and its share of clients: the sum of the weights of its endpoints.
type NodeShare struct {
	Name  string
	Share uint32
}

func (d *Direct) same(o *Direct) bool {
	if d == o || d == nil || o == nil {
		return d == o
	}
	sameLocal := d.Local == o.Local || d.Local != nil && o.Local != nil && slices.Equal(d.Local.Endpoints, o.Local.Endpoints) &&
		d.Local.Algorithm == o.Local.Algorithm && d.Local.Balancer.same(o.Local.Balancer)
	return d.ByAddress == o.ByAddress && slices.Equal(d.Nodes, o.Nodes) && sameLocal
}

// Slots returns the lookup table: for each of DirectSlots the index of a node in Nodes.
func (d *Direct) Slots() []uint16 {
	keys, weights := make([][sha256.Size]byte, len(d.Nodes)), make([]int, len(d.Nodes))
	for i, n := range d.Nodes {
		keys[i], weights[i] = sha256.Sum256([]byte(n.Name)), int(n.Share)
	}
	return maglev(DirectSlots, keys, weights)
}

// Slot returns the slot of a client, which is the kernel's
//
//	jhash ip saddr . th sport mod 1021 seed 0x64697265
//
// and without the port if ByAddress.
func (d *Direct) Slot(client netip.AddrPort) int {
	data := client.Addr().AsSlice()
	if !d.ByAddress {
		data = append(data, byte(client.Port()>>8), byte(client.Port()), 0, 0)
	}
	return int(uint64(jhash(data, DirectSeed)) * DirectSlots >> 32)
}

// Node returns the name of the node that a client's connection goes to.
func (d *Direct) Node(client netip.AddrPort) string {
	return d.Nodes[d.Slots()[d.Slot(client)]].Name
}
