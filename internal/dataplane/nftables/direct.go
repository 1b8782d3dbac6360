//go:build linux

package nftables

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// directTableOf returns the name of three tables of their own, in the families netdev, ip and ip6, which exist while
// packets are handed to other nodes; the last one only where there is IPv6.
func directTableOf(instance string) string { return sideTableOf("direct", instance) }

var directFamilies = []nft.Family{nft.NetDev, nft.IP, nft.IP6}

// directState keeps these tables.
type directState struct {
	conn sideConn
	name string
	// known says that what the kernel has is known, and absent that it is nothing.
	known, absent bool
	// resumes says that packets were handed on before, and other nodes know that.
	resumes  bool
	settings dataplane.Direct
	// generation is that of the ruleset when the tables were last known to be as they should be.
	generation uint32
	ingress    *mirror
	families   map[model.Family]*directFamily
	counted    tally
	bound      int
	clock      func() time.Time
}

// directFamily mirrors the table of an IP family.
type directFamily struct {
	*layout
	*mirror
	pools   map[affinityID]*directPool
	poolsOf map[plan.Key]affinityID
	// numbers are those of nodes by address, addrs the reverse. Packets are handed to those that are usable, and
	// those of connections that are not known here to those that are reached.
	numbers         map[netip.Addr]nodeNumber
	addrs           []netip.Addr
	usable, reached []bool
	byName          map[string]nodeNumber
}

func newDirectState(name string, netns int) *directState {
	d := &directState{conn: sideConn{netns: netns}, name: name, clock: time.Now, bound: maxElements}
	d.reset()
	return d
}

// reset forgets everything.
func (d *directState) reset() {
	d.ingress, d.families = newMirror(nft.NetDev, d.name), map[model.Family]*directFamily{}
	for _, f := range model.Families {
		if f == model.IPv6 && d.settings.NoIPv6 {
			continue
		}
		d.families[f] = &directFamily{
			layout: layouts[f], mirror: newMirror(layouts[f].nf, d.name), pools: map[affinityID]*directPool{},
			poolsOf: map[plan.Key]affinityID{}, numbers: map[netip.Addr]nodeNumber{}, addrs: make([]netip.Addr, unknownNode+1),
		}
	}
}

// Direct implements dataplane.DirectReturner.
func (d *directState) Direct(ctx context.Context, settings *dataplane.Direct) error {
	if settings == nil {
		return d.removeDirect(ctx)
	}
	if err := d.conn.open(); err != nil {
		return err
	}
	if d.settings.NoIPv6 != settings.NoIPv6 {
		d.settings.NoIPv6, d.known = settings.NoIPv6, false
	}
	if err := d.mend(ctx); err != nil {
		return err
	}
	all := !d.known
	if all {
		d.reset()
		if err := d.read(ctx); err != nil {
			return err
		}
	}
	err := d.follow(ctx, settings, all)
	if d.known, d.absent = err == nil, false; err == nil {
		d.resumes = false
		d.generation, err = d.conn.Generation(ctx)
	}
	return err
}

// removeDirect removes the tables.
func (d *directState) removeDirect(ctx context.Context) error {
	if d.known && d.absent {
		return nil
	}
	if err := d.conn.open(); err != nil {
		return err
	}
	if _, err := removeTables(ctx, d.conn.Conn, []string{d.name}, directFamilies...); err != nil {
		return err
	}
	d.reset()
	d.known, d.absent, d.counted = true, true, nil
	return d.conn.rest()
}

// follow brings the kernel from what it has to what it should have: first who the other nodes are, whose packets are
// not handed on, then what is handed on, and last who is none of them any more.
func (d *directState) follow(ctx context.Context, settings *dataplane.Direct, all bool) error {
	before := d.settings
	d.settings = *settings
	all = all || !sameNode(&before, settings)
	b := &nft.Batch{}
	d.ingress.create(b, ingressSets())
	shared := map[*mirror]map[string]map[string]string{d.ingress: {peers: d.peerKeys()}}
	dirty := map[*directFamily]map[affinityID]struct{}{}
	for _, f := range d.families {
		f.create(b, f.sharedSets())
		f.number(settings)
		shared[f.mirror] = map[string]map[string]string{peers: d.peerKeys(), handedBy: d.peerKeys(),
			peerAddrs: d.peerAddrs(f), nodeIPs: d.nodeIPs(f)}
		dirty[f] = map[affinityID]struct{}{}
		if all || !samePeers(before.Peers, settings.Peers) {
			for id := range f.pools {
				dirty[f][id] = struct{}{}
			}
		}
	}
	for m, sets := range shared {
		for set, want := range sets {
			m.add(b, set, want)
		}
	}
	now, begins := d.clock(), time.Time{}
	if !d.resumes {
		begins = now.Add(dataplane.DirectDelay)
	}
	place := func(k plan.Key) {
		if f := d.families[k.Family()]; f != nil {
			f.place(k, settings.Frontends[k], begins, dirty[f])
		}
	}
	for k := range settings.Changed {
		place(k)
	}
	if all {
		for k := range settings.Frontends {
			place(k)
		}
	}
	for _, f := range d.families {
		for id, p := range f.pools {
			if forgot, begins := p.forget(now), p.begin(now); forgot || begins {
				dirty[f][id] = struct{}{}
			}
		}
	}
	b, err := d.writePools(ctx, b, dirty, now)
	if err != nil {
		return err
	}
	for m, sets := range shared {
		for set, want := range sets {
			m.retain(b, set, want)
		}
	}
	d.baseChains(b)
	return d.commit(ctx, b)
}

func (d *directState) commit(ctx context.Context, b *nft.Batch) error {
	if b.Empty() {
		return nil
	}
	return d.conn.Commit(ctx, b)
}

// writePools writes the pools that changed, and returns what was not committed yet.
func (d *directState) writePools(
	ctx context.Context, b *nft.Batch, dirty map[*directFamily]map[affinityID]struct{}, now time.Time,
) (*nft.Batch, error) {
	for f, ids := range dirty {
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			if b.Elements() > d.bound/2 {
				if err := d.commit(ctx, b); err != nil {
					return nil, err
				}
				b = &nft.Batch{}
			}
			p := f.pools[id]
			if len(p.frontends) == 0 {
				p.write(b, f, d.ingress, nil, nil)
				delete(f.pools, id)
				continue
			}
			p.assign(f.slotsOf(p, d.settings.Node), now)
			want, rules := p.want(f, d)
			p.write(b, f, d.ingress, want, rules)
		}
	}
	return b, nil
}

// baseChains writes the chains that all pools share, and removes those of another device.
func (d *directState) baseChains(b *nft.Batch) {
	own := ingressBase(d.settings.Device)
	var others []string
	for name := range d.ingress.chains {
		if strings.HasPrefix(name, ingressBase("")) && name != own {
			others = append(others, name)
		}
	}
	d.ingress.removeChains(b, others)
	d.ingress.setChains(b, ingressChains(&d.settings))
	for _, f := range d.families {
		f.setChains(b, f.directBase(&d.settings))
	}
}

// number numbers the nodes, and takes over which of them are usable. Numbers stay what they are.
func (f *directFamily) number(settings *dataplane.Direct) {
	f.byName = map[string]nodeNumber{}
	for _, p := range settings.Peers {
		f.byName[p.Name] = unknownNode
		if addr := p.Path(f.family).Addr; addr.IsValid() {
			f.byName[p.Name] = f.numberOf(addr)
		}
	}
	f.usable, f.reached = make([]bool, len(f.addrs)), make([]bool, len(f.addrs))
	for _, p := range settings.Peers {
		path, n := p.Path(f.family), f.byName[p.Name]
		f.reached[n] = n != unknownNode && path.MAC != dataplane.MAC{}
		f.usable[n] = f.reached[n] && path.Usable
	}
}

func (f *directFamily) numberOf(addr netip.Addr) nodeNumber {
	n, known := f.numbers[addr]
	if !known {
		n = nodeNumber(len(f.addrs))
		f.numbers[addr], f.addrs = n, append(f.addrs, addr)
	}
	return n
}

// slotsOf returns the nodes that have the slots of a pool.
func (f *directFamily) slotsOf(p *directPool, self string) []nodeNumber {
	var of *plan.Direct
	for _, fe := range p.frontends {
		of = fe.Direct
	}
	numbers := make([]nodeNumber, len(of.Nodes))
	for i, n := range of.Nodes {
		number, known := f.byName[n.Name]
		switch {
		case n.Name == self:
			numbers[i] = thisNode
		case known:
			numbers[i] = number
		default:
			numbers[i] = unknownNode
		}
	}
	if of != p.of { // the table takes longer to compute than the rest
		p.of, p.table = of, of.Slots()
	}
	slots := make([]nodeNumber, len(p.table))
	for i, n := range p.table {
		slots[i] = numbers[n]
	}
	return slots
}

// place puts a frontend into its pool, or takes it out, and records which pools changed. Packets of a new pool are
// handed on when it begins.
func (f *directFamily) place(k plan.Key, fe *plan.Frontend, begins time.Time, dirty map[affinityID]struct{}) {
	if id, was := f.poolsOf[k]; was {
		delete(f.pools[id].frontends, k)
		delete(f.poolsOf, k)
		dirty[id] = struct{}{}
	}
	if fe == nil {
		return
	}
	id := hashID("direct " + f.nf.String() + " " + fe.Service.String() + ":" + fe.Port + "/" + fe.Protocol.String())
	p := f.pools[id]
	if p == nil {
		p = &directPool{id: id, frontends: map[plan.Key]*plan.Frontend{}, begins: begins}
		f.pools[id] = p
	}
	p.protocol = fe.Protocol
	p.frontends[k], f.poolsOf[k] = fe, id
	dirty[id] = struct{}{}
}

// sameNode reports whether what all pools depend on is the same, besides the peers.
func sameNode(a, b *dataplane.Direct) bool {
	return a.Index == b.Index && a.Device == b.Device && a.MasqueradeMark == b.MasqueradeMark &&
		a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && slices.Equal(a.NodePortIPs, b.NodePortIPs)
}

func samePeers(a, b []dataplane.DirectPeer) bool {
	return slices.EqualFunc(a, b, func(a, b dataplane.DirectPeer) bool {
		return a.Name == b.Name && a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6
	})
}

// peerKeys are the addresses of the other nodes on the link.
func (d *directState) peerKeys() map[string]string {
	keys := map[string]string{}
	for _, p := range d.settings.Peers {
		for _, f := range model.Families {
			if mac := p.Path(f).MAC; mac != (dataplane.MAC{}) {
				keys[string(mac[:])] = ""
			}
		}
	}
	return keys
}

// peerAddrs are they with the addresses of a family.
func (d *directState) peerAddrs(f *directFamily) map[string]string {
	keys := map[string]string{}
	for _, p := range d.settings.Peers {
		if path := p.Path(f.family); path.MAC != (dataplane.MAC{}) {
			keys[macKey(path.MAC)] = string(path.Addr.AsSlice())
		}
	}
	return keys
}

// macKey encodes a key of one part, which is not padded.
func macKey(mac dataplane.MAC) string { return string(mac[:]) }

// nodeIPs are the addresses at which some node answers at node ports: where this one does, and all
// of others, at which they may.
func (d *directState) nodeIPs(f *directFamily) map[string]string {
	keys := map[string]string{}
	for _, ip := range d.settings.NodePortIPs {
		if model.FamilyOf(ip) == f.family {
			keys[string(ip.AsSlice())] = ""
		}
	}
	for _, p := range d.settings.Peers {
		for _, ip := range p.IPs {
			if model.FamilyOf(ip) == f.family {
				keys[string(ip.AsSlice())] = ""
			}
		}
	}
	return keys
}

// Proofs implements dataplane.DirectReturner.
func (d *directState) Proofs(ctx context.Context, of []netip.Addr) (map[netip.Addr]dataplane.Proof, error) {
	out := map[netip.Addr]dataplane.Proof{}
	if err := d.conn.open(); err != nil { // a new process asks before anything else
		return nil, err
	}
	for _, f := range d.families {
		var keys []nft.Element
		var addrs []netip.Addr
		for _, addr := range of {
			if model.FamilyOf(addr) != f.family {
				continue
			}
			for _, kind := range []byte{dataplane.ForeignProbe, dataplane.PlainProbe} {
				var a nft.Arena
				a.Addr(addr)
				a.Protocol(kind)
				keys, addrs = append(keys, nft.Element{Key: a}), append(addrs, addr)
			}
		}
		now := d.clock()
		err := d.conn.Lookup(ctx, d.ingress.Table, proofs(f.family), keys, func(i int, e *nft.Element) error {
			if e == nil {
				return nil
			}
			p, at := out[addrs[i]], now.Add(e.Expires-dataplane.ProofTimeout)
			if i%2 == 0 {
				p.Foreign = at
			} else {
				p.Plain = at
			}
			out[addrs[i]] = p
			return nil
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // without a table there are none
			return nil, err
		}
	}
	return out, nil
}
