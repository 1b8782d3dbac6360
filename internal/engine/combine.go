package engine

import (
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/plan"
)

// combine returns the one change that does what several do one after another.
// There must be at least one.
func combine(changes []*plan.Change) *plan.Change {
	if len(changes) == 1 {
		return changes[0]
	}
	out := &plan.Change{}
	frontends := map[plan.Key]*plan.Frontend{} // nil for removed
	clusterIPs := map[netip.Addr]bool{}        // true for added, false for removed
	for _, c := range changes {
		out.Revision = max(out.Revision, c.Revision)
		if c.Settings != nil {
			out.Settings = c.Settings
		}
		out.HealthChecks = out.HealthChecks || c.HealthChecks
		out.Problems = out.Problems || c.Problems
		out.News.Add(c.News)
		for _, key := range c.Removed {
			frontends[key] = nil
		}
		for _, f := range c.Set {
			frontends[f.Key] = f
		}
		toggle(clusterIPs, c.ClusterIPsRemoved, false)
		toggle(clusterIPs, c.ClusterIPsAdded, true)
	}
	for _, key := range slices.SortedFunc(maps.Keys(frontends), plan.Key.Compare) {
		if f := frontends[key]; f != nil {
			out.Set = append(out.Set, f)
		} else {
			out.Removed = append(out.Removed, key)
		}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(clusterIPs), netip.Addr.Compare) {
		if clusterIPs[addr] {
			out.ClusterIPsAdded = append(out.ClusterIPsAdded, addr)
		} else {
			out.ClusterIPsRemoved = append(out.ClusterIPsRemoved, addr)
		}
	}
	return out
}

// toggle notes that addresses were added or removed. What was added and is
// then removed, or the other way round, is no difference in the end.
func toggle(net map[netip.Addr]bool, addrs []netip.Addr, added bool) {
	for _, addr := range addrs {
		if was, ok := net[addr]; ok && was != added {
			delete(net, addr)
		} else {
			net[addr] = added
		}
	}
}
