//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// Describe reads the elements of one frontend, one by one.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	t, f := d.mirrored(at.Key)
	if t == nil {
		return dataplane.Description{}, dataplane.ErrReconciling
	}
	r := &describer{ctx: ctx, conn: d.reader, table: t, at: at}
	m := mapsOf(at.Key)
	now := programmed{}
	now.verdict, now.packets = r.target(m.verdict, &rangeBlocks)
	if f != nil {
		now.outside, now.outsidePackets = r.target(m.outside, &outsideBlocks)
		now.filteredPackets = r.filtered(f.filters)
		r.out.Route, r.out.RouteSize = r.pool(m.slots, f.Frontend, &f.Route, f.slots, client)
		if f.Outside != nil {
			r.out.Outside, r.out.OutsideSize = r.pool(m.outsideSlots, f.Frontend, f.Outside, f.outsideSlots, client)
		}
		r.sources(f.sources)
		if f.Affinity > 0 && client.IsValid() {
			id := affinityOf(f.Frontend)
			r.client(id.clientMap(false).name(), client, id)
			r.client(id.clientMap(true).name(), client, id)
		}
	}
	if r.out.Present = now.verdict != ""; r.out.Present {
		r.out.Counted = !d.uncounted
		r.out.Connections, r.out.Refused = d.totals(f, at.Key, &now)
	}
	return r.out, r.err
}

// totals returns how many connections a frontend had, and how many packets that tried
// to open one it refused.
func (d *Dataplane) totals(f *frontend, k plan.Key, now *programmed) (connections, refused uint64) {
	d.commits.Lock()
	defer d.commits.Unlock()
	if f == nil {
		return now.packets, 0
	}
	t := trafficOf(f.Frontend, now).Plus(d.carried[k])
	for _, n := range t.Refused {
		refused += uint64(max(0, n))
	}
	return uint64(max(0, t.Connections)), refused
}

// mirrored returns the mirror of a frontend, and its table, for concurrent use. The
// table is nil while the contents of the kernel are unknown.
func (d *Dataplane) mirrored(k plan.Key) (*layoutTable, *frontend) {
	d.commits.Lock()
	defer d.commits.Unlock()
	for _, t := range d.tables {
		if t.family == k.Family() {
			return &layoutTable{t.layout, t.Table}, t.frontends[k]
		}
	}
	return nil, nil
}

// layoutTable is the part of a table that is needed to read its elements.
type layoutTable struct {
	*layout
	nft.Table
}

// describer reads elements until one cannot be read.
type describer struct {
	ctx   context.Context
	conn  *nft.Conn
	table *layoutTable
	at    dataplane.Destination
	arena arena
	out   dataplane.Description
	err   error
}

// read reads an element and reports whether it is there.
func (r *describer) read(set string, e *nft.Element) bool {
	if r.err != nil {
		return false
	}
	err := r.conn.Element(r.ctx, r.table.Table, set, e)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		r.err = err
	}
	return err == nil
}

func (r *describer) object(set, format string, args ...any) {
	where := fmt.Sprintf("%s %s, %s", r.table.Family, r.table.Name, set)
	r.out.Objects = append(r.out.Objects, dataplane.Object{Where: where, What: fmt.Sprintf(format, args...)})
}

// key returns the frontend's key as nft(8) writes it.
func (r *describer) key() string { return r.keyWith(r.at.PortText()) }

func (r *describer) keyWith(port string) string {
	rest := strings.ToLower(r.at.Protocol.String()) + " . " + port
	if r.at.NodePort() {
		return rest
	}
	return r.at.Addr.String() + " . " + rest
}

// verdict reads a verdict and its counter; "" if there is none.
func (r *describer) verdict(set, port string, key []byte) (name string, packets uint64) {
	e := nft.Element{Key: key}
	if !r.read(set, &e) || e.Verdict == nil {
		return "", 0
	}
	r.object(set, "%s counter packets %d : %s", r.keyWith(port), e.Packets, e.Verdict)
	return verdictName(e.Verdict), e.Packets
}

// target reads where the frontend leads, from a map or, for a range, from those of its blocks, whose counters it
// adds up; "" if it leads nowhere, or not all of it to the same.
func (r *describer) target(set string, maps *blockMaps) (name string, packets uint64) {
	if !r.at.IsRange() {
		return r.verdict(set, r.at.PortText(), r.arena.frontendKey(r.at.Key))
	}
	for i, b := range blocksOf(r.at.Ports()) {
		to, n := r.verdict(maps[b.bits], strconv.Itoa(int(b.port)), r.arena.blockKey(r.at.Key, b))
		if i > 0 && to != name {
			return "", 0
		}
		name, packets = to, packets+n
	}
	return name, packets
}

// filtered reads how many packets the source ranges did not admit, if there are any.
func (r *describer) filtered(some bool) uint64 {
	e := nft.Element{Key: r.arena.filterKey(r.at.Key)}
	if !some || !r.read(mapsOf(r.at.Key).filters, &e) {
		return 0
	}
	return e.Packets
}

// pool reads the endpoints of a route, and returns how many there are.
func (r *describer) pool(set string, f *plan.Frontend, route *plan.Route, mirrored []netip.AddrPort, client netip.Addr) (found []netip.AddrPort, size int) {
	switch {
	case pooled(route):
		id := poolOf(f, route)
		name := fmt.Sprintf("%d . %d", id.words()[0], id.words()[1])
		return r.repeatedSlots(pools, poolKey(id), name, route, plan.MaglevSize, client)
	case len(mirrored) == len(route.Endpoints):
		return r.slots(set, mirrored)
	}
	return r.repeatedSlots(set, r.at.Key, r.key(), route, len(mirrored), client)
}

// repeatedSlots reads a pool whose endpoints have several slots, because of weights or
// for Maglev.
func (r *describer) repeatedSlots(set string, key plan.Key, name string, route *plan.Route, slots int, client netip.Addr) (found []netip.AddrPort, size int) {
	keys := make([]nft.Element, slots)
	for i := range keys {
		keys[i].Key = r.arena.slotKey(key, i)
	}
	of := -1 // the client's slot
	if route.ByClient() && client.IsValid() {
		of = plan.HashClient(client, len(keys))
	}
	counts := map[netip.AddrPort]int{}
	err := r.conn.Lookup(r.ctx, r.table.Table, set, keys, func(i int, e *nft.Element) error {
		if e == nil {
			return nil
		}
		v := r.table.decode(e.Data)
		ep := v.target(kindOf(key))
		if !v.Done() {
			return nil
		}
		if counts[ep]++; counts[ep] == 1 {
			found = append(found, ep)
		}
		if i == of {
			r.object(set, "%s . %d : %s", name, i, elementText(ep))
		}
		return nil
	})
	r.err = errors.Join(r.err, err)
	size = len(found)
	found = found[:min(size, dataplane.MaxDescribed)]
	for _, ep := range found {
		r.object(set, "%s . (%d of %d slots) : %s", name, counts[ep], len(keys), elementText(ep))
	}
	return found, size
}

// elementText is an endpoint as nft(8) writes it.
func elementText(ep netip.AddrPort) string {
	if ep.Port() == 0 {
		return ep.Addr().String()
	}
	return fmt.Sprintf("%s . %d", ep.Addr(), ep.Port())
}

// slots reads the endpoints of a pool, and returns how many there are, those included
// that are too many to read.
func (r *describer) slots(set string, mirrored []netip.AddrPort) (found []netip.AddrPort, size int) {
	n := min(len(mirrored), dataplane.MaxDescribed)
	for i := range n {
		e := nft.Element{Key: r.arena.slotKey(r.at.Key, i)}
		if !r.read(set, &e) {
			continue
		}
		v := r.table.decode(e.Data)
		if ep := v.target(kindOf(r.at.Key)); v.Done() {
			found = append(found, ep)
			r.object(set, "%s . %d : %s", r.key(), i, elementText(ep))
		}
	}
	return found, len(found) + len(mirrored) - n
}

func (r *describer) sources(prefixes []netip.Prefix) {
	for _, p := range prefixes[:min(len(prefixes), dataplane.MaxDescribed)] {
		e := nft.Element{Key: r.arena.sourceKey(r.at.Key, p)}
		if set := mapsOf(r.at.Key).sources; r.read(set, &e) {
			r.object(set, "%s . %s . %s . %d", r.at.Addr, r.at.PortText(), p.Addr(), sourceNumber(r.at.Protocol, p.Bits()))
		}
	}
}

// client reads the endpoint that is remembered for a client.
func (r *describer) client(set string, client netip.Addr, id affinityID) {
	e := nft.Element{Key: r.arena.clientKey(client, id)}
	if !r.read(set, &e) {
		return
	}
	v := r.table.decode(e.Data)
	if ep := v.endpoint(); v.Done() {
		r.out.Remembered = append(r.out.Remembered, dataplane.Remembered{Endpoint: ep, Expires: e.Expires})
		r.object(set, "%s . %d . %d : %s . %d", client, id.words()[0], id.words()[1], ep.Addr(), ep.Port())
	}
}
