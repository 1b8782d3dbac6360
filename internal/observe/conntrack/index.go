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
	// refused are frontends whose entries cannot be examined until the kernel accepts them.
	refused map[plan.Key]struct{}
	// local reports whether the routing table considers an address local.
	local func(netip.Addr) bool
	// forwards reports whether the proxy itself forwards what is led to an address.
	forwards func(netip.AddrPort) bool
	// retired are frontends that were removed, and former where node ports
	// answered, since the last complete pass.
	retired map[plan.Key]struct{}
	former  []plan.Settings
}

// newIndex returns an empty index.
func newIndex(local func(netip.Addr) bool) *index {
	x := &index{refused: map[plan.Key]struct{}{}, local: local, forwards: func(netip.AddrPort) bool { return false }}
	x.forget()
	return x
}

// forget drops removed frontends: no entries of theirs are left.
func (x *index) forget() { x.retired, x.former = map[plan.Key]struct{}{}, nil }

// empty reports whether no entry can be stale.
func (x *index) empty() bool { return x.frontends == 0 && len(x.retired) == 0 }

// stale reports whether an entry must be deleted, given the frontends that are programmed. One of
// which it is not known what the kernel does is nil.
func (x *index) stale(f *flow, frontends map[plan.Key]*plan.Frontend) bool {
	frontend, found := plan.Lookup(frontends, &x.settings, f.key(), x.local)
	if f.Protocol == model.TCP {
		return frontend != nil && !x.forwards(f.By) && lostEndpoint(frontend, f)
	}
	switch {
	case !found:
		return f.Translated() && x.isOrphan(f, frontends)
	case frontend == nil:
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
	return !frontend.Serves(f.By)
}

// lostEndpoint reports whether the endpoint of a TCP connection no longer
// serves. Without its entry, packets of the client are handled by the rules,
// which must answer: a connection is not reset where they would be dropped.
func lostEndpoint(f *plan.Frontend, c *flow) bool {
	drops := func(r *plan.Route) bool { return r.Verdict() == plan.Drop }
	return c.Translated() && !c.Over() && !f.Serves(c.By) && !slices.ContainsFunc(f.Routes(), drops)
}

// isOrphan reports whether a flow is addressed to a frontend that was removed.
func (x *index) isOrphan(f *flow, frontends map[plan.Key]*plan.Frontend) bool {
	if _, ok := x.retired[f.key()]; ok {
		return true
	}
	key := f.nodePortKey()
	_, gone := x.retired[key]
	_, there := frontends[key]
	if !gone && !there {
		return false
	}
	had := func(s plan.Settings) bool { return s.HasNodePorts(f.To.Addr(), x.local) }
	return had(x.settings) || slices.ContainsFunc(x.former, had)
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

// set records that a frontend is programmed in place of an old one, nil for none, and reports
// whether that can have made an entry stale.
func (x *index) set(old, f *plan.Frontend) bool {
	_, refused := x.refused[f.Key]
	delete(x.refused, f.Key)
	delete(x.retired, f.Key)
	if old == nil || refused {
		return refused || followsFirst(f.Protocol)
	}
	return !f.ServesAll(old) || followsFirst(f.Protocol) && !old.HasEndpoints()
}

// followsFirst reports whether clients of a protocol keep sending to a frontend
// without endpoints, so that their entries are stale when it gets its first
// one.
func followsFirst(p model.Protocol) bool { return p == model.UDP }

// refuse records that the kernel refused a frontend.
func (x *index) refuse(key plan.Key) { x.refused[key] = struct{}{} }

func (x *index) remove(key plan.Key) {
	delete(x.refused, key)
	x.retired[key] = struct{}{}
}

// configure records where node ports answer, and reports whether that can have
// made an entry stale.
func (x *index) configure(s *plan.Settings) bool {
	old := x.settings
	x.settings = *s
	if old.NodePortAll4 == s.NodePortAll4 && old.NodePortAll6 == s.NodePortAll6 &&
		slices.Equal(old.NodePortIPs, s.NodePortIPs) {
		return false
	}
	x.former = append(x.former, old)
	return true
}
