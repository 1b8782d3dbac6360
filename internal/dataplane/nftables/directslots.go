//go:build linux

package nftables

import (
	"encoding/binary"
	"slices"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// nodeNumber stands for the address of a node in the slots of a family.
type nodeNumber uint16

const (
	thisNode    nodeNumber = 0
	unknownNode nodeNumber = 1 // which nothing can be handed to
)

// directLookup is the lookup table of nodes with shares, before it is known which of them there are.
type directLookup struct {
	nodes []plan.NodeShare
	slots []uint16
}

// slotTable is which node has each slot, and what the kernel has of that. All service ports whose endpoints are on the
// same nodes, in the same shares, have one together.
type slotTable struct {
	id    affinityID
	slots []nodeNumber
	users int // handovers
	// handed are the elements of the map of slots, thisNode for none, and own are those of this node. They are nil
	// until the kernel has the table.
	handed []nodeNumber
	own    []bool
}

// lookupOf returns the lookup table of a pool. It takes longer to compute than anything else here.
func (f *directFamily) lookupOf(p *directPool) *directLookup {
	of := p.direct()
	if p.lookup != nil && slices.Equal(p.lookup.nodes, of.Nodes) {
		return p.lookup
	}
	var key []byte
	for _, n := range of.Nodes {
		key = binary.BigEndian.AppendUint32(append(append(key, n.Name...), 0), n.Share)
	}
	l := f.lookups[string(key)]
	if l == nil {
		l = &directLookup{of.Nodes, of.Slots()}
		f.lookups[string(key)] = l
	}
	return l
}

// tableOf returns the table of the nodes that there are. Its name says which they are, so that a later process finds
// what it needs.
func (f *directFamily) tableOf(l *directLookup, self string) *slotTable {
	if t := f.resolved[l]; t != nil {
		return t
	}
	name := []byte("direct slots " + f.nf.String())
	numbers := make([]nodeNumber, len(l.nodes))
	for i, n := range l.nodes {
		number, known := f.byName[n.Name]
		switch {
		case n.Name == self:
			numbers[i] = thisNode
		case known:
			numbers[i] = number
		default:
			numbers[i] = unknownNode
		}
		name = f.appendNode(name, numbers[i])
	}
	slots := make([]nodeNumber, len(l.slots))
	for i, n := range l.slots {
		slots[i] = numbers[n]
		name = binary.BigEndian.AppendUint16(name, n)
	}
	id := hashID(string(name))
	t := f.tables[id]
	if t == nil {
		t = &slotTable{id: id}
		f.tables[id] = t
	}
	t.slots = slots // of one that was read it is not known who has slots that nobody gets packets of
	f.resolved[l] = t
	return t
}

// appendNode appends what is the same in every process of a node, for a hash.
func (f *directFamily) appendNode(b []byte, n nodeNumber) []byte {
	switch n {
	case thisNode:
		return append(b, 's')
	case unknownNode:
		return append(b, 'u')
	}
	return append(append(b, 'a'), f.addrs[n].AsSlice()...)
}

// sets are the sets of a table: in the family netdev the first one alone.
func (t *slotTable) sets(l *layout) []*nft.Set {
	return []*nft.Set{
		{Name: slotsOf(t.id), Key: l.slotNumber(), Data: l.nodeAddr(), Size: plan.DirectSlots},
		{Name: ownOf(t.id), Key: l.slotNumber(), Size: plan.DirectSlots},
	}
}

// write writes the difference between what the kernel has and what it should have.
func (t *slotTable) write(b *nft.Batch, f *directFamily, ingress *mirror) {
	if t.handed == nil {
		sets := t.sets(f.layout)
		b.AddSet(ingress.Table, sets[0])
		for _, s := range sets {
			b.AddSet(f.Table, s)
		}
		t.handed, t.own = make([]nodeNumber, len(t.slots)), make([]bool, len(t.slots))
	}
	handed := make([]nodeNumber, len(t.slots))
	for i, n := range t.slots {
		if f.usable[n] {
			handed[i] = n
		}
	}
	f.slots(b, ingress.Table, slotsOf(t.id), t.handed, handed)
	f.slots(b, f.Table, slotsOf(t.id), t.handed, handed)
	t.handed = handed
	var a arena
	for i, n := range t.slots {
		e := nft.Element{Key: slotNumber(&a, i)}
		switch own := n == thisNode; {
		case own && !t.own[i]:
			b.AddElement(f.Table, ownOf(t.id), &e, 0)
		case t.own[i] && !own:
			b.DeleteElement(f.Table, ownOf(t.id), &e, 0)
		}
		t.own[i] = n == thisNode
	}
}

// remove removes what the kernel has.
func (t *slotTable) remove(b *nft.Batch, f *directFamily, ingress *mirror) {
	if t.handed == nil {
		return
	}
	sets := t.sets(f.layout)
	b.DeleteSet(ingress.Table, sets[0].Name)
	for _, s := range sets {
		b.DeleteSet(f.Table, s.Name)
	}
}

// slots changes the elements of a map of nodes.
func (f *directFamily) slots(b *nft.Batch, t nft.Table, set string, now, want []nodeNumber) {
	var a arena
	for i := range want {
		if now[i] == want[i] {
			continue
		}
		key := slotNumber(&a, i)
		if now[i] != thisNode {
			b.DeleteElement(t, set, &nft.Element{Key: key}, 0)
		}
		if want[i] != thisNode {
			b.AddElement(t, set, &nft.Element{Key: key, Data: addressKey(&a.Arena, f.addrs[want[i]])}, 0)
		}
	}
}

func slotNumber(a *arena, i int) []byte {
	at := len(a.Arena)
	a.Word(uint32(i))
	return a.Cut(at)
}

func (l *layout) slotNumber() nft.Type {
	return nft.Type{Parts: nft.Concat{nft.Random(plan.DirectSlots)}, Typeof: true}
}

func (l *layout) nodeAddr() nft.Type { return nft.Type{Parts: nft.Concat{l.dest}, Typeof: true} }
