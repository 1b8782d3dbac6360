//go:build linux

package nftables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// flowTableOf returns the name of a table of its own for the flow table of established connections, which exists
// while there is one.
func flowTableOf(instance string) string { return sideTableOf("flow", instance) }

const (
	// flows is the flow table.
	flows = "flows"
	// The sets: frontends by address, protocol and port, node ports, and ranges of ports by address and protocol.
	flowFrontends = "frontends"
	flowNodePorts = "nodeports"
	flowRanges    = "ranges"
	// And the devices of the flow table: for packets that come in elsewhere it would be of no use.
	flowDevices = "flow-devices"

	// flowPriority is after all that may drop the packet: what is dropped is not offloaded.
	flowPriority = 200
	// maxFlowDevices is how many devices the kernel lets a message have, and lists for certain.
	maxFlowDevices = 256
	// flowDevicesAtOnce keep the kernel's notifications small.
	flowDevicesAtOnce = 64
)

// offloader keeps one such table for each family.
type offloader struct {
	conn   sideConn
	tables map[model.Family]*flowTable
}

// flowTable mirrors a table.
type flowTable struct {
	*layout
	nft.Table
	known, exists bool
	held          map[plan.Key]struct{} // the frontends whose connections are offloaded
	sets          [3]flowSet
}

// flowSet mirrors a set.
type flowSet struct {
	of nft.Set
	*nft.Members[plan.Key]
}

func newOffloader(name string, netns int) *offloader {
	o := &offloader{conn: sideConn{netns: netns}, tables: map[model.Family]*flowTable{}}
	for _, f := range model.Families {
		l := layouts[f]
		t := &flowTable{layout: l, Table: nft.Table{Family: l.nf, Name: name, Comment: tableComment}, held: map[plan.Key]struct{}{}}
		t.reset()
		o.tables[f] = t
	}
	return o
}

// reset forgets what is in the kernel.
func (t *flowTable) reset() {
	t.exists = false
	for i, set := range []nft.Set{
		{Name: flowFrontends, Key: nft.Type{Parts: nft.Concat{t.dest, nft.Protocol, nft.DestPort}}},
		{Name: flowNodePorts, Key: nft.Type{Parts: nft.Concat{nft.Protocol, nft.DestPort}}},
		{Name: flowRanges, Key: nft.Type{Parts: nft.Concat{t.dest, nft.Protocol}}},
	} {
		t.sets[i] = flowSet{set, nft.NewMembers(t.Table, set.Name, flowKeys(set.Name), 0)}
	}
	for k := range t.held {
		i, element := elementOf(k)
		t.sets[i].Hold(element)
	}
}

// deviceSet is the set of devices.
var deviceSet = nft.Set{Name: flowDevices, Key: nft.Type{Parts: nft.Concat{nft.Interface}}}

var deviceNames = nft.MemberType[string]{
	Key: func(a *nft.Arena, name string) []byte {
		at := len(*a)
		a.Interface(name)
		return a.Cut(at)
	},
	Decode:  (*nft.Decoder).Interface,
	Compare: strings.Compare,
}

// flowKeys are the elements of a set as keys of frontends, without what the set does not tell apart.
func flowKeys(set string) nft.MemberType[plan.Key] {
	return nft.MemberType[plan.Key]{
		Key: func(a *nft.Arena, k plan.Key) []byte {
			at := len(*a)
			if set != flowNodePorts {
				a.Addr(k.Addr)
			}
			a.Protocol(byte(k.Protocol))
			if set != flowRanges {
				a.Port(k.Port)
			}
			return a.Cut(at)
		},
		Decode: func(d *nft.Decoder) (k plan.Key) {
			if set != flowNodePorts {
				k.Addr = d.Addr()
			}
			k.Protocol = model.Protocol(d.Protocol())
			if set != flowRanges {
				k.Port = d.Port()
			}
			return k
		},
		Compare: plan.Key.Compare,
	}
}

// elementOf returns the number of the set that a frontend is in, and its key there. Ranges of an address share one.
func elementOf(k plan.Key) (set int, element plan.Key) {
	switch {
	case k.NodePort():
		return 1, plan.Key{Protocol: k.Protocol, Port: k.Port}
	case k.IsRange():
		return 2, plan.Key{Addr: k.Addr, Protocol: k.Protocol}
	}
	return 0, k
}

// Offload implements dataplane.Offloader.
func (o *offloader) Offload(ctx context.Context, want *dataplane.Offload) ([]string, error) {
	for k, there := range want.Changed {
		if k.Protocol != model.SCTP { // of which the kernel has no flows
			o.tables[k.Family()].change(k, there)
		}
	}
	devices := slices.Compact(slices.Sorted(slices.Values(want.Devices)))
	tooMany := len(devices) - maxFlowDevices
	if tooMany > 0 {
		devices = devices[:maxFlowDevices]
	}
	if len(want.Families) > 0 || !o.absent() {
		if err := o.conn.open(); err != nil {
			return nil, err
		}
	}
	var in []string
	var errs []error
	for f, t := range o.tables {
		if !slices.Contains(want.Families, f) {
			errs = append(errs, t.remove(ctx, o.conn.Conn))
			continue
		}
		has, err := t.follow(ctx, o.conn.Conn, devices)
		in = append(in, has...)
		errs = append(errs, err)
	}
	slices.Sort(in)
	in = slices.Compact(in)
	if err := cmp.Or(errs...); err != nil { // all families lack the same
		return in, err
	}
	if tooMany > 0 {
		return in, fmt.Errorf("flow tables have at most %d devices, and %d more are left out", maxFlowDevices, tooMany)
	}
	if o.absent() {
		return in, o.conn.rest()
	}
	return in, nil
}

// absent reports whether the kernel is known to have none of the tables.
func (o *offloader) absent() bool {
	for _, t := range o.tables {
		if !t.known || t.exists {
			return false
		}
	}
	return true
}

func (t *flowTable) change(k plan.Key, there bool) {
	i, element := elementOf(k)
	switch _, held := t.held[k]; {
	case there && !held:
		t.held[k] = struct{}{}
		t.sets[i].Hold(element)
	case !there && held:
		delete(t.held, k)
		t.sets[i].Release(element)
	}
}

// remove leaves nothing in the kernel.
func (t *flowTable) remove(ctx context.Context, conn *nft.Conn) error {
	clear(t.held)
	if t.known && !t.exists {
		return nil
	}
	if _, err := removeTables(ctx, conn, []string{t.Name}, t.Family); err != nil {
		return err
	}
	t.known = true
	t.reset()
	return nil
}

// follow makes the table as it should be, with these devices, and returns those that it has then.
func (t *flowTable) follow(ctx context.Context, conn *nft.Conn, devices []string) ([]string, error) {
	if t.exists && t.known {
		intact, err := t.intact(ctx, conn)
		if err != nil {
			return nil, err
		}
		t.known = intact
	}
	if !t.known {
		if err := t.adopt(ctx, conn); err != nil {
			return nil, err
		}
	}
	if !t.exists {
		if err := t.create(ctx, conn); err != nil {
			return nil, err
		}
	}
	for i := range t.sets {
		if err := write(ctx, conn, t.sets[i]); err != nil {
			t.known = false
			return nil, err
		}
	}
	has, err := t.followDevices(ctx, conn, devices)
	if err != nil {
		return nil, err
	}
	return has, t.nameDevices(ctx, conn, has)
}

// nameDevices makes these the elements of the set of devices, which are few.
func (t *flowTable) nameDevices(ctx context.Context, conn *nft.Conn, devices []string) error {
	names := nft.NewMembers(t.Table, flowDevices, deviceNames, len(devices))
	for _, name := range devices {
		names.Hold(name)
	}
	if err := names.Find(ctx, conn, -1, func(*nft.Element) {}); err != nil {
		return err
	}
	return write(ctx, conn, names)
}

// adopt keeps a table of an earlier process that is like ours, and removes another one.
func (t *flowTable) adopt(ctx context.Context, conn *nft.Conn) error {
	t.reset()
	sets, err := t.alike(ctx, conn)
	if err != nil {
		return err
	}
	if sets == nil {
		_, err := removeTables(ctx, conn, []string{t.Name}, t.Family)
		t.known = err == nil
		return err
	}
	for i, s := range t.sets {
		if err := s.Find(ctx, conn, sets[i].Count, func(*nft.Element) {}); err != nil {
			return err
		}
	}
	t.known, t.exists = true, true
	return nil
}

// alike returns the sets of the table in the kernel, in our order, if it has the rules and sets of ours, whatever
// these contain; nil otherwise.
func (t *flowTable) alike(ctx context.Context, conn *nft.Conn) (ordered []nft.SetInfo, err error) {
	has, err := t.hasRules(ctx, conn)
	if !has || err != nil {
		return nil, err
	}
	sets, err := conn.Sets(ctx, t.Table)
	if err != nil || len(sets) != len(t.sets)+1 || !slices.ContainsFunc(sets, deviceSet.Matches) {
		return nil, err
	}
	for i := range t.sets {
		at := slices.IndexFunc(sets, t.sets[i].of.Matches)
		if at < 0 {
			return nil, nil
		}
		ordered = append(ordered, sets[at])
	}
	return ordered, nil
}

// hasRules reports whether the kernel has the flow table, the base chain and the rules.
func (t *flowTable) hasRules(ctx context.Context, conn *nft.Conn) (bool, error) {
	tables, err := conn.Tables(ctx, t.Family)
	if err != nil || !slices.ContainsFunc(tables, func(o nft.Table) bool { return o.Name == t.Name && !o.Dormant }) {
		return false, err
	}
	have, err := conn.FlowTables(ctx, t.Table)
	if err != nil || len(have) != 1 || have[0].Name != flows || !have[0].Counter {
		return false, err
	}
	chains, err := conn.Chains(ctx, t.Table)
	if err != nil || !slices.Contains(chains, forwardChain) {
		return false, err
	}
	rules, err := conn.Rules(ctx, t.Table)
	if err != nil {
		return false, err
	}
	return slices.Equal(identify(rules), identify(t.rules())), nil
}

// intact reports whether the kernel still has what was written: the rules, and elements in another order each
// time, all if they are few.
func (t *flowTable) intact(ctx context.Context, conn *nft.Conn) (bool, error) {
	intact, err := t.hasRules(ctx, conn)
	if err != nil || !intact {
		return false, err
	}
	var keys [len(t.sets)][]nft.Element
	left := looked
	for k := range t.held {
		i, element := elementOf(k)
		if t.sets[i].Has(element) { // otherwise it is about to be written
			keys[i] = append(keys[i], nft.Element{Key: t.sets[i].Key(&nft.Arena{}, element)})
		}
		if left--; left == 0 {
			break
		}
	}
	for i := range t.sets {
		err := conn.Lookup(ctx, t.Table, t.sets[i].Name(), keys[i], func(_ int, e *nft.Element) error {
			intact = intact && e != nil
			return nil
		})
		switch {
		case errors.Is(err, unix.ENOENT): // the set
			return false, nil
		case err != nil && !errors.Is(err, nft.ErrInterrupted):
			return false, err
		}
	}
	return intact, nil
}

var forwardChain = nft.Chain{Name: "forward", Type: "filter", Hook: unix.NF_INET_FORWARD, Priority: flowPriority}

// addChain is a name that is no word of nft's language.
const addChain = "services"

// rules are those of the table. Others translate destinations, too: the sets tell which connections are to
// Services. The kernel adds no connection of TCP that is not established.
func (t *flowTable) rules() []nft.Rule {
	rule := func(chain string, e nft.Exprs) nft.Rule { return nft.Rule{Chain: chain, Exprs: e, Tag: e.Tag()} }
	const status = nft.DNAT | nft.SeenReply
	addr, port := nft.TupleDest(t.nf, nft.Original), nft.TupleDestPort(nft.Original)
	coming := anyPacket.In(flowDevices, nft.Concat{nft.Interface})
	return []nft.Rule{
		rule(forwardChain.Name, coming.HasStatus(status|nft.Offloaded, status).HasMorePackets(dataplane.OffloadAfter).Jump(addChain)),
		rule(addChain, anyPacket.In(flowFrontends, nft.Concat{addr, nft.TupleProtocol, port}).FlowAdd(flows)),
		rule(addChain, anyPacket.In(flowNodePorts, nft.Concat{nft.TupleProtocol, port}).FlowAdd(flows)),
		rule(addChain, anyPacket.In(flowRanges, nft.Concat{addr, nft.TupleProtocol}).FlowAdd(flows)),
	}
}

// create writes the table, without elements and devices: what the kernel refuses of it, it does not have.
func (t *flowTable) create(ctx context.Context, conn *nft.Conn) error {
	b := &nft.Batch{}
	b.AddTable(t.Table)
	b.AddFlowTable(t.Table, nft.FlowTable{Name: flows, Counter: true})
	b.AddSet(t.Table, &deviceSet)
	for i := range t.sets {
		b.AddSet(t.Table, &t.sets[i].of)
	}
	b.AddChain(t.Table, forwardChain)
	b.AddChain(t.Table, nft.Chain{Name: addChain})
	for _, r := range t.rules() {
		b.AddRule(t.Table, r)
	}
	err := conn.Commit(ctx, b)
	var refused *nft.Refused
	switch {
	case errors.As(err, &refused) && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP)):
		return fmt.Errorf("%w: %w", dataplane.ErrNoFlowTables, err)
	case err != nil:
		return fmt.Errorf("adding a flow table: %w", err)
	}
	t.exists = true
	return nil
}

// write writes what a set lacks, and removes what is too much.
func write(ctx context.Context, conn *nft.Conn, m nft.MemberSet) error {
	const room = 1 << 10
	for m.Missing(1) > 0 || m.Surplus(1) > 0 {
		b := &nft.Batch{}
		m.Add(b, room)
		m.Remove(b, room)
		if err := conn.Commit(ctx, b); err != nil {
			return err
		}
		m.Added()
		m.Removed()
	}
	return nil
}

// followDevices gives the flow table these devices, as far as they exist. The kernel takes those out that
// are deleted.
func (t *flowTable) followDevices(ctx context.Context, conn *nft.Conn, wanted []string) ([]string, error) {
	has, err := t.devices(ctx, conn)
	if err != nil {
		return nil, err
	}
	without := func(all, these []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(d string) bool { return slices.Contains(these, d) })
	}
	missing, surplus := without(wanted, has), without(has, wanted)
	if len(missing)+len(surplus) == 0 {
		return has, nil
	}
	add := func(b *nft.Batch, f nft.FlowTable) { b.AddFlowTable(t.Table, f) }
	drop := func(b *nft.Batch, f nft.FlowTable) { b.RemoveDevices(t.Table, f) }
	if err := cmp.Or(changeDevices(ctx, conn, add, missing), changeDevices(ctx, conn, drop, surplus)); err != nil {
		return nil, fmt.Errorf("changing the devices of a flow table: %w", err)
	}
	return t.devices(ctx, conn)
}

// changeDevices commits a change for some devices after the other, and, if one of them is gone, for each that is not.
func changeDevices(ctx context.Context, conn *nft.Conn, change func(*nft.Batch, nft.FlowTable), devices []string) error {
	for some := range slices.Chunk(devices, flowDevicesAtOnce) {
		b := &nft.Batch{}
		change(b, nft.FlowTable{Name: flows, Counter: true, Devices: some})
		err := conn.Commit(ctx, b)
		switch {
		case err == nil:
		case !errors.Is(err, unix.ENOENT):
			return err
		case len(some) > 1:
			for i := range some {
				if err := changeDevices(ctx, conn, change, some[i:i+1]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// devices returns those that the flow table has.
func (t *flowTable) devices(ctx context.Context, conn *nft.Conn) ([]string, error) {
	have, err := conn.FlowTables(ctx, t.Table)
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		t.known = false
		return nil, fmt.Errorf("table %s %s: %w", t.Family, t.Name, unix.ENOENT)
	}
	return have[0].Devices, nil
}
