package conntrack

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// index is what the kernel is programmed to do.
type index struct {
	// followed has the programmed frontends and settings. A refused frontend is
	// nil: what the kernel does there is not known.
	followed plan.Desired
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
	x := &index{followed: plan.Desired{Frontends: map[plan.Key]*plan.Frontend{}}, local: local,
		forwards: func(netip.AddrPort) bool { return false }}
	x.forget()
	return x
}

// forget drops removed frontends: no entries of theirs are left.
func (x *index) forget() { x.retired, x.former = map[plan.Key]struct{}{}, nil }

// empty reports whether no entry can be stale.
func (x *index) empty() bool { return len(x.followed.Frontends) == 0 && len(x.retired) == 0 }

// stale reports whether an entry must be deleted.
func (x *index) stale(f *flow) bool {
	frontend, found := x.followed.Lookup(f.key(), x.local)
	if f.Protocol == model.TCP {
		return frontend != nil && !x.forwards(f.By) && lostEndpoint(frontend, f)
	}
	switch {
	case !found:
		return f.Translated() && x.isOrphan(f)
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
func (x *index) isOrphan(f *flow) bool {
	if _, ok := x.retired[f.key()]; ok {
		return true
	}
	key := f.nodePortKey()
	_, gone := x.retired[key]
	_, there := x.followed.Frontends[key]
	if !gone && !there {
		return false
	}
	had := func(s plan.Settings) bool { return s.HasNodePorts(f.To.Addr(), x.local) }
	return had(x.followed.Settings) || slices.ContainsFunc(x.former, had)
}

// set records a programmed frontend, and reports whether that can have made an
// entry stale.
func (x *index) set(f *plan.Frontend) bool {
	old, known := x.followed.Frontends[f.Key]
	x.followed.Frontends[f.Key] = f
	delete(x.retired, f.Key)
	if old == nil {
		return known || followsFirst(f.Protocol)
	}
	return !f.ServesAll(old) || followsFirst(f.Protocol) && !old.HasEndpoints()
}

// followsFirst reports whether clients of a protocol keep sending to a frontend
// without endpoints, so that their entries are stale when it gets its first
// one.
func followsFirst(p model.Protocol) bool { return p == model.UDP }

// refuse records that it is not known what the kernel does at a frontend.
func (x *index) refuse(key plan.Key) { x.followed.Frontends[key] = nil }

func (x *index) remove(key plan.Key) {
	delete(x.followed.Frontends, key)
	x.retired[key] = struct{}{}
}

// configure records where node ports answer, and reports whether that can have
// made an entry stale.
func (x *index) configure(s *plan.Settings) bool {
	old := x.followed.Settings
	x.followed.Settings = *s
	if old.NodePortAll4 == s.NodePortAll4 && old.NodePortAll6 == s.NodePortAll6 &&
		slices.Equal(old.NodePortIPs, s.NodePortIPs) {
		return false
	}
	x.former = append(x.former, old)
	return true
}
