//go:build linux

package nftables

import (
	"context"
	"errors"
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
	// generation is that of the ruleset when the tables were last known to be as they should be, 0 if that is not
	// known.
	generation uint32
	mended     time.Time // when it was looked at last
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
	pools     map[affinityID]*directPool
	poolsOf   map[plan.Key]affinityID
	tables    map[affinityID]*slotTable
	handovers map[handoverKey]*handover
	// numbers are those of nodes by address, addrs the reverse. Packets are handed to those that are usable, and
	// those of connections that are not known here to those that are reached.
	numbers         map[netip.Addr]nodeNumber
	addrs           []netip.Addr
	usable, reached []bool
	byName          map[string]nodeNumber
	// read are handovers that an earlier process left, by their chains for second chances, until it is known which pools
	// they are of; nil if there were none.
	read map[string]*handover
	directCache
}

// directCache is what pools have in common, while a change is written.
type directCache struct {
	lookups  map[string]*directLookup
	resolved map[*directLookup]*slotTable
	moves    map[move]formerly
}

// mendPeriod is how long changes may follow each other before it is looked whether another program has changed the
// tables.
const mendPeriod = 10 * time.Second

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
			layout: layouts[f], mirror: newMirror(layouts[f].nf, d.name),
			pools: map[affinityID]*directPool{}, poolsOf: map[plan.Key]affinityID{},
			tables: map[affinityID]*slotTable{}, handovers: map[handoverKey]*handover{},
			numbers: map[netip.Addr]nodeNumber{}, addrs: make([]netip.Addr, unknownNode+1),
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
	// Looking takes longer than most changes.
	now := d.clock()
	looks := len(settings.Changed) == 0 || now.Sub(d.mended) >= mendPeriod
	if looks {
		d.mended = now
		if err := d.mend(ctx); err != nil {
			return err
		}
	}
	all := !d.known
	if all {
		d.reset()
		if err := d.read(ctx); err != nil {
			return err
		}
	}
	err := d.follow(ctx, settings, all)
	if d.known, d.absent = err == nil, false; err != nil {
		d.resumes = d.resumes || errors.Is(err, unix.ENOENT) // another program has removed something
		return err
	}
	d.resumes = false
	if d.generation = 0; looks || all {
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
	paths := all || !samePeers(before.Peers, settings.Peers)
	w := &directWriter{d: d, Batch: &nft.Batch{}, ingress: d.ingress, paths: paths, now: d.clock()}
	d.ingress.create(w.Batch, ingressSets())
	shared := map[*mirror]map[string]map[string]string{d.ingress: {peers: d.peerKeys()}}
	for _, f := range d.families {
		f.create(w.Batch, f.sharedSets())
		f.number(settings)
		shared[f.mirror] = map[string]map[string]string{peers: d.peerKeys(), handedBy: d.peerKeys(),
			peerAddrs: d.peerAddrs(f), nodeIPs: d.nodeIPs(f)}
	}
	for m, sets := range shared {
		for set, want := range sets {
			m.add(w.Batch, set, want)
		}
	}
	dirty := d.place(all, w.now)
	for _, f := range d.families {
		if err := w.write(ctx, f, dirty[f]); err != nil {
			return err
		}
	}
	for m, sets := range shared {
		for set, want := range sets {
			m.retain(w.Batch, set, want)
		}
	}
	d.baseChains(w.Batch)
	return d.commit(ctx, w.Batch)
}

// place puts frontends that changed into their pools, all of them if all is set, and returns the pools that may have
// to be written.
func (d *directState) place(all bool, now time.Time) map[*directFamily]map[affinityID]struct{} {
	dirty := map[*directFamily]map[affinityID]struct{}{}
	for _, f := range d.families {
		dirty[f] = map[affinityID]struct{}{}
		for id, p := range f.pools {
			if p.begin(now) || all {
				dirty[f][id] = struct{}{}
			}
		}
	}
	begins := time.Time{}
	if !d.resumes {
		begins = now.Add(dataplane.DirectDelay)
	}
	place := func(k plan.Key) {
		if f := d.families[k.Family()]; f != nil {
			f.place(k, d.settings.Frontends[k], begins, dirty[f])
		}
	}
	for k := range d.settings.Changed {
		place(k)
	}
	if all {
		for k := range d.settings.Frontends {
			place(k)
		}
	}
	return dirty
}

func (d *directState) commit(ctx context.Context, b *nft.Batch) error {
	if b.Empty() {
		return nil
	}
	return d.conn.Commit(ctx, b)
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
	if p.handover == nil {
		f.adopt(p, k)
	}
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
