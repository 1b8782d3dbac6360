//go:build linux

package nftables

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
)

// datagramMemory is for how long a UDP flow goes to the node that had its slot before: longer than the kernel
// remembers one of which no more packets come. Every new flow looks like one that began there.
const datagramMemory = 3 * time.Minute

// handover is how packets are handed on, and what the kernel has of that: chains, and who had slots before. All pools
// of a kind have one together, if their slots have the same nodes, now and before.
type handover struct {
	handoverKey
	// formerly are the other nodes that had a slot before, the last one first; nil if none had one.
	formerly []candidates
	users    int // pools
	// idle says that nobody used it the last time, either. It stays for as long as it takes to count its packets.
	idle bool
	// moved is when a slot moved last.
	moved time.Time
	there bool
	// asked are the elements of its maps of nodes, thisNode for none.
	asked [][]nodeNumber
}

// handoverKey is what pools of a handover have in common.
type handoverKey struct {
	table *slotTable
	handoverKind
	former affinityID // a hash of formerly; 0 for none
}

// handoverKind is what the chains depend on, besides.
type handoverKind struct {
	protocol model.Protocol
	// byAddress says that the slot follows from the client's address alone.
	byAddress bool
	// begins says that nothing is handed on yet, but back to who knows it.
	begins bool
}

// handoverKinds are the kinds by their names.
var handoverKinds = map[string]handoverKind{
	"tcp":         {protocol: model.TCP},
	"udp":         {protocol: model.UDP},
	"tcp-address": {protocol: model.TCP, byAddress: true},
	"udp-address": {protocol: model.UDP, byAddress: true},
	"tcp-begins":  {protocol: model.TCP, begins: true},
	"udp-begins":  {protocol: model.UDP, begins: true},
}

func (k handoverKind) String() string {
	name := strings.ToLower(k.protocol.String())
	switch {
	case k.begins:
		name += "-begins"
	case k.byAddress:
		name += "-address"
	}
	return name
}

// name is part of the names of what the kernel has.
func (k handoverKey) name() string {
	name := k.table.id.hex() + "-" + k.handoverKind.String()
	if k.former != 0 {
		name += "-" + k.former.hex()
	}
	return name
}

// parseHandover is the reverse of name.
func (f *directFamily) parseHandover(name string) (k handoverKey, ok bool) {
	id, rest, _ := strings.Cut(name, "-")
	if k.table, ok = f.tableNamed(id); !ok {
		return k, false
	}
	if k.handoverKind, ok = handoverKinds[rest]; ok {
		return k, true
	}
	at := strings.LastIndexByte(rest, '-')
	if k.handoverKind, ok = handoverKinds[rest[:max(at, 0)]]; !ok {
		return k, false
	}
	former, err := strconv.ParseUint(rest[at+1:], 16, 64)
	k.former = affinityID(former)
	return k, err == nil
}

func (f *directFamily) tableNamed(hex string) (*slotTable, bool) {
	id, err := strconv.ParseUint(hex, 16, 64)
	t := f.tables[affinityID(id)]
	return t, err == nil && t != nil
}

// candidates are nodes that may know a connection, thisNode for none.
type candidates [3]nodeNumber

// prepend puts a node first, and makes room for it if need be.
func (c candidates) prepend(n nodeNumber) (out candidates) {
	out[0] = n
	at := 1
	for _, other := range c {
		if other != n && other != thisNode && at < len(out) {
			out[at] = other
			at++
		}
	}
	return out
}

// formerlyOf returns who had slots before, of a protocol, after slots got other nodes; nil for nobody.
func formerlyOf(p model.Protocol, formerly []candidates, before, now []nodeNumber) []candidates {
	out := make([]candidates, len(now))
	copy(out, formerly)
	some := formerly != nil
	for i, n := range now {
		was := before[i]
		switch {
		case n == was:
			continue
		case p != model.TCP:
			// Whoever got the slot since had all flows served by the first.
			if out[i][0] == thisNode {
				out[i][0] = max(was, unknownNode)
			}
		case was != thisNode && was != unknownNode:
			out[i] = out[i].prepend(was)
		default:
			continue
		}
		some = true
	}
	if !some {
		return nil
	}
	return out
}

// hashOf identifies who had slots before.
func (f *directFamily) hashOf(formerly []candidates) affinityID {
	if formerly == nil {
		return 0
	}
	var text []byte
	for i, c := range formerly {
		for _, n := range c {
			if n != thisNode {
				text = f.appendNode(binary.BigEndian.AppendUint16(text, uint16(i)), n)
			}
		}
	}
	return max(hashID(string(text)), 1)
}

// forgets reports whether it is time to forget who had slots before, which is so for datagrams only.
func (r *handover) forgets(now time.Time) bool {
	return r.protocol != model.TCP && r.formerly != nil && now.Sub(r.moved) >= datagramMemory
}

// move is a change of slots of pools that had a handover.
type move struct {
	from *handover
	to   *slotTable
}

// formerly is who had slots before.
type formerly struct {
	nodes []candidates
	hash  affinityID
}

// after returns who had slots before, when a pool goes from a handover to a table.
func (f *directFamily) after(from *handover, to *slotTable, now time.Time) formerly {
	out := formerly{from.formerly, from.former}
	if from.forgets(now) {
		out = formerly{}
	}
	if from.table == to {
		return out
	}
	m, known := f.moves[move{from, to}]
	if !known {
		m.nodes = formerlyOf(from.protocol, out.nodes, from.table.slots, to.slots)
		m.hash = f.hashOf(m.nodes)
		f.moves[move{from, to}] = m
	}
	return m
}

// retarget gives a pool the handover that it should have, and reports whether that is another one.
func (f *directFamily) retarget(p *directPool, self string, now time.Time) bool {
	p.lookup = f.lookupOf(p)
	key, before, old := handoverKey{table: f.tableOf(p.lookup, self), handoverKind: p.kind()}, formerly{}, p.handover
	if old != nil {
		before = f.after(old, key.table, now)
	}
	key.former = before.hash
	r := f.handovers[key]
	if r == old && r != nil {
		return false
	}
	if r == nil {
		r = &handover{handoverKey: key, formerly: before.nodes}
		f.handovers[key] = r
		key.table.users++
	}
	if old != nil {
		old.users--
		if r.moved = slices.MaxFunc([]time.Time{r.moved, old.moved}, time.Time.Compare); old.table != r.table {
			r.moved = now
		}
	}
	r.users++
	p.handover = r
	return true
}

// others returns which nodes are asked for connections of a slot that are not known here, besides the one that gets the
// packets of the slot. Where there is no handshake what begins cannot be told from what is not known, and
// one node has all that came before and since: while it is remembered, that one is among them.
func (r *handover) others(i int, f *directFamily) (out candidates) {
	owner, all := r.table.slots[i], candidates{}
	if r.formerly != nil {
		all = r.formerly[i]
	}
	handed := f.usable[owner]
	switch {
	case owner == thisNode || owner == unknownNode:
	case r.protocol == model.TCP:
		if all = all.prepend(owner); handed {
			all = candidates{all[1], all[2]}
		}
	case all[0] == thisNode && handed && r.formerly != nil:
		all[0] = owner
	}
	at := 0
	for _, n := range all {
		if n > unknownNode && f.reached[n] {
			out[at] = n
			at++
		}
	}
	return out
}

// wanted returns the elements of the maps of nodes that are asked.
func (r *handover) wanted(f *directFamily) [][]nodeNumber {
	out := make([][]nodeNumber, len(r.asked))
	add := func(c int) {
		for len(out) <= c {
			out = append(out, nil)
		}
		if out[c] == nil {
			out[c] = make([]nodeNumber, len(r.table.slots))
		}
	}
	for c := range r.asked { // those that there are stay, if need be empty
		add(c)
	}
	if r.begins { // nobody is asked for connections that others do not know yet
		return out
	}
	for i := range r.table.slots {
		for c, n := range r.others(i, f) {
			if n != thisNode {
				add(c)
				out[c][i] = n
			}
		}
	}
	return out
}

// write writes the difference between what the kernel has and what it should have.
func (r *handover) write(b *nft.Batch, f *directFamily, ingress *mirror, device int) {
	for c, want := range r.wanted(f) {
		if c == len(r.asked) {
			b.AddSet(f.Table, r.askedSet(f.layout, c))
			r.asked = append(r.asked, make([]nodeNumber, len(want)))
		}
		f.slots(b, f.Table, askedOf(r.name(), c), r.asked[c], want)
		r.asked[c] = want
	}
	rules := &handoverRules{f.layout, r, device}
	if !r.begins {
		ingress.setChains(b, rules.ingress())
	}
	f.setChains(b, []directChain{plainChain(secondOf(r.name()), rules.secondChance()...)})
	r.there = true
}

// remove removes what the kernel has. Nothing leads to it any more.
func (r *handover) remove(b *nft.Batch, f *directFamily, ingress *mirror) {
	name := r.name()
	ingress.removeChains(b, []string{passOf(name), errorOf(name)})
	f.removeChains(b, []string{secondOf(name)})
	for c := range r.asked {
		b.DeleteSet(f.Table, askedOf(name, c))
	}
}
