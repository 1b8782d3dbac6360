package conntrack

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// index is what the kernel follows.
type index struct {
	// followed has frontends, and where node ports answer. A frontend that was
	// refused is nil: what the kernel does there is not known.
	followed plan.Desired
	// local tells whether the routing table calls an address local.
	local func(netip.Addr) bool
	// retired are frontends that have gone, and former where node ports answered,
	// since the table was last swept.
	retired map[plan.Key]struct{}
	former  []plan.Settings
}

// newIndex returns one that asks local what the routing table calls local.
func newIndex(local func(netip.Addr) bool) *index {
	x := &index{followed: plan.Desired{Frontends: map[plan.Key]*plan.Frontend{}}, local: local}
	x.forget()
	return x
}

// forget what has gone: nothing in the table is left of it.
func (x *index) forget() { x.retired, x.former = map[plan.Key]struct{}{}, nil }

// empty tells whether no entry can be stale.
func (x *index) empty() bool { return len(x.followed.Frontends) == 0 && len(x.retired) == 0 }

// stale decides whether an entry must go.
func (x *index) stale(f *flow) bool {
	frontend, found := x.followed.Lookup(f.key(), x.local)
	if f.protocol == model.TCP {
		return frontend != nil && lostEndpoint(frontend, f)
	}
	switch {
	case !found:
		return f.translated() && x.isOrphan(f)
	case frontend == nil:
		return false
	case f.zoned && !f.translated():
		// Virtual switches track what passes them in zones of their own, before
		// it is translated.
		return false
	}
	return !frontend.Serves(f.by)
}

// lostEndpoint tells whether a TCP connection has lost its endpoint. Without its
// entry, what the client sends is decided by the rules, and they must say so: a
// connection is not cut where they would drop that without a word.
func lostEndpoint(f *plan.Frontend, c *flow) bool {
	drops := func(r *plan.Route) bool { return r.Verdict() == plan.Drop }
	return c.translated() && !c.over() && !f.Serves(c.by) && !slices.ContainsFunc(f.Routes(), drops)
}

// isOrphan tells whether a flow is addressed to a frontend that has gone.
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
	had := func(s plan.Settings) bool { return s.HasNodePorts(f.to.Addr(), x.local) }
	return had(x.followed.Settings) || slices.ContainsFunc(x.former, had)
}

// set notes what the kernel follows now, and tells whether that can have made
// an entry stale.
func (x *index) set(f *plan.Frontend) bool {
	old, known := x.followed.Frontends[f.Key]
	x.followed.Frontends[f.Key] = f
	delete(x.retired, f.Key)
	if old == nil {
		return known || followsFirst(f.Protocol)
	}
	return !f.ServesAll(old) || followsFirst(f.Protocol) && !old.HasEndpoints()
}

// followsFirst tells whether clients of a protocol go on sending to a frontend
// that has no endpoint, so that the first one that comes must be made known to
// them.
func followsFirst(p model.Protocol) bool { return p == model.UDP }

// refuse notes that it is not known what the kernel does.
func (x *index) refuse(key plan.Key) { x.followed.Frontends[key] = nil }

// remove notes that a frontend has gone.
func (x *index) remove(key plan.Key) {
	delete(x.followed.Frontends, key)
	x.retired[key] = struct{}{}
}

// configure notes where node ports answer now, and tells whether that can have
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
