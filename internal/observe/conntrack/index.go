//go:build linux

package conntrack

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// index is what must be known, besides what is desired, to tell which entries are stale.
type index struct {
	// frontends counts those that are programmed, settings is where node ports answer.
	frontends int
	settings  plan.Settings
	// peers are the addresses of other nodes that hand over packets to their node ports.
	peers map[netip.Addr]struct{}
	// ranges are where ports are in ranges.
	ranges plan.Ranges
	// refused are frontends whose entries cannot be examined until the kernel accepts them.
	refused map[plan.Key]struct{}
	// local reports whether the routing table considers an address local.
	local func(netip.Addr) bool
	// forwards reports whether the proxy itself forwards what is led to an address.
	forwards func(netip.AddrPort) bool
	// retired are frontends that were removed, and former where node ports
	// answered, since the last complete pass.
	retired map[plan.Key]struct{}
	// retiredRanges are those of retired that are ranges.
	retiredRanges []plan.Key
	former        []plan.Settings
}

func newIndex(local func(netip.Addr) bool) *index {
	x := &index{refused: map[plan.Key]struct{}{}, local: local, forwards: func(netip.AddrPort) bool { return false }}
	x.forget()
	return x
}

// forget drops removed frontends: no entries of theirs are left.
func (x *index) forget() {
	x.retired, x.retiredRanges, x.former = map[plan.Key]struct{}{}, nil, nil
}

// rangesOf returns the range that a flow can meet, if there is one.
func (x *index) rangesOf(f *flow) []plan.Key {
	if key, is := x.ranges.Find(f.key()); is {
		return []plan.Key{key}
	}
	return nil
}

func (x *index) empty() bool { return x.frontends == 0 && len(x.retired) == 0 }

// stale reports whether an entry must be deleted, given the frontends that are programmed. One of
// which it is not known what the kernel does is nil.
func (x *index) stale(f *flow, frontends map[plan.Key]*plan.Frontend) bool {
	frontend, found := plan.Lookup(frontends, x.ranges, &x.settings, f.key(), x.local)
	if !found && x.handed(f) {
		frontend, found = frontends[f.nodePortKey()]
	}
	if f.Protocol == model.TCP {
		return frontend != nil && !x.forwards(f.By) && f.Translated() && (missesPool(frontend, f) || lostEndpoint(frontend, f))
	}
	switch {
	case !found:
		return f.Translated() && x.isOrphan(f, frontends)
	case frontend == nil:
		return false
	case !f.Translated() && passesAll(frontend): // it is somebody else's
		return false
	case f.Zoned && !f.Translated():
		// Virtual switches track packets in zones of their own, before
		// it is translated.
		return false
	}
	if x.forwards(f.By) {
		// The proxy knows which endpoint serves. If there is none, the rules are to
		// answer.
		return !frontend.ProxyConnects || !frontend.HasEndpoints()
	}
	return !frontend.Serves(f.endpoint(frontend))
}

// handed reports whether the flow can be one to a node port of another node, which handed it over. That one
// would translate it otherwise.
func (x *index) handed(f *flow) bool {
	_, ofPeer := x.peers[f.To.Addr()]
	return ofPeer && f.Translated()
}

// lostEndpoint reports whether the endpoint of a TCP connection no longer
// serves. Without its entry, packets of the client are handled by the rules,
// which must answer: a connection is not reset where they would be dropped.
func lostEndpoint(f *plan.Frontend, c *flow) bool {
	drops := func(r *plan.Route) bool { return r.Verdict() == plan.Drop || r.Verdict() == plan.Pass }
	return !c.unanswered() && !c.Over() && !f.Serves(c.endpoint(f)) && !slices.ContainsFunc(f.Routes(), drops)
}

// passesAll reports whether the packets of all clients are left alone.
func passesAll(f *plan.Frontend) bool {
	return !slices.ContainsFunc(f.Routes(), func(r *plan.Route) bool { return r.Verdict() != plan.Pass })
}

// missesPool reports whether a TCP connection that was not answered yet leads to an endpoint that gets no
// new ones any more. The client repeats its first packet, which is then led elsewhere.
func missesPool(f *plan.Frontend, c *flow) bool { return c.unanswered() && !f.Offers(c.endpoint(f)) }

// isOrphan reports whether a flow is addressed to a frontend that was removed.
func (x *index) isOrphan(f *flow, frontends map[plan.Key]*plan.Frontend) bool {
	if _, ok := x.retired[f.key()]; ok {
		return true
	}
	if slices.ContainsFunc(x.retiredRanges, func(k plan.Key) bool { return k.Has(f.key()) }) {
		return true
	}
	key := f.nodePortKey()
	_, gone := x.retired[key]
	_, there := frontends[key]
	if !gone && !there {
		return false
	}
	had := func(s plan.Settings) bool { return s.HasNodePorts(f.To.Addr(), x.local) }
	return x.handed(f) || had(x.settings) || slices.ContainsFunc(x.former, had)
}

// count counts a frontend that replaces another. Either may be nil.
func (x *index) count(old, new *plan.Frontend) {
	if old != nil {
		x.frontends--
	}
	if new != nil {
		x.frontends++
	}
}

// set records that a frontend is programmed in place of an old one, nil for none, and returns
// the entries that this can have made stale.
func (x *index) set(old, f *plan.Frontend) (due kinds) {
	_, refused := x.refused[f.Key]
	delete(x.refused, f.Key)
	delete(x.retired, f.Key)
	if f.IsRange() {
		x.retiredRanges = slices.DeleteFunc(x.retiredRanges, func(k plan.Key) bool { return k == f.Key })
	}
	if f.Protocol == model.UDP {
		// Clients keep sending to a frontend without endpoints, so that their entries are stale
		// when it gets its first one.
		if refused || old == nil || !old.HasEndpoints() || !f.ServesAll(old) {
			due = kinds{allUDP}
		}
		return due
	}
	if refused || old != nil && !f.OffersAll(old) {
		due = kinds{unansweredTCP}
	}
	if refused || old != nil && !f.ServesAll(old) {
		due = due.with(allTCP)
	}
	return due
}

// refuse records that the kernel refused a frontend.
func (x *index) refuse(key plan.Key) { x.refused[key] = struct{}{} }

func (x *index) remove(key plan.Key) {
	delete(x.refused, key)
	x.retired[key] = struct{}{}
	if key.IsRange() {
		x.retiredRanges = append(x.retiredRanges, key)
	}
}

// configure records where node ports answer, and reports whether that can have
// made an entry stale.
func (x *index) configure(s *plan.Settings) bool {
	old := x.settings
	x.settings, x.peers = *s, peersOf(s)
	if old.NodePortAll4 == s.NodePortAll4 && old.NodePortAll6 == s.NodePortAll6 &&
		slices.Equal(old.NodePortIPs, s.NodePortIPs) {
		return false
	}
	x.former = append(x.former, old)
	return true
}

func peersOf(s *plan.Settings) map[netip.Addr]struct{} {
	if s.DirectReturn == nil {
		return nil
	}
	peers := map[netip.Addr]struct{}{}
	for _, n := range s.DirectReturn.Nodes {
		for _, ip := range n.IPs {
			if !n.Self {
				peers[ip] = struct{}{}
			}
		}
	}
	return peers
}
