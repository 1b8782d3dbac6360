package engine

import (
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/plan"
)

// combine merges one or more consecutive changes into one with the same effect.
func combine(changes []*plan.Change) *plan.Change {
	if len(changes) == 1 {
		return changes[0]
	}
	out := &plan.Change{}
	frontends := map[plan.Key]*plan.Frontend{} // nil for removed
	serving := map[plan.Key]bool{}             // the kernel has nothing to do for it
	clusterIPs := map[netip.Addr]bool{}        // true for added, false for removed
	healthPorts := map[uint16]bool{}           // the same
	for _, c := range changes {
		out.Revision = max(out.Revision, c.Revision)
		if c.Settings != nil {
			out.Settings = c.Settings
		}
		out.HealthChecks = out.HealthChecks || c.HealthChecks
		out.Problems = out.Problems || c.Problems
		for _, f := range c.Serving {
			_, set := frontends[f.Key]
			frontends[f.Key], serving[f.Key] = f, !set || serving[f.Key]
		}
		for _, key := range c.Removed {
			frontends[key], serving[key] = nil, false
		}
		for _, f := range c.Set {
			frontends[f.Key], serving[f.Key] = f, false
		}
		toggle(clusterIPs, c.ClusterIPsRemoved, false)
		toggle(clusterIPs, c.ClusterIPsAdded, true)
		toggle(healthPorts, c.HealthPortsRemoved, false)
		toggle(healthPorts, c.HealthPortsAdded, true)
	}
	for _, key := range slices.SortedFunc(maps.Keys(frontends), plan.Key.Compare) {
		switch f := frontends[key]; {
		case f == nil:
			out.Removed = append(out.Removed, key)
		case serving[key]:
			out.Serving = append(out.Serving, f)
		default:
			out.Set = append(out.Set, f)
		}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(clusterIPs), netip.Addr.Compare) {
		if clusterIPs[addr] {
			out.ClusterIPsAdded = append(out.ClusterIPsAdded, addr)
		} else {
			out.ClusterIPsRemoved = append(out.ClusterIPsRemoved, addr)
		}
	}
	for _, port := range slices.Sorted(maps.Keys(healthPorts)) {
		if healthPorts[port] {
			out.HealthPortsAdded = append(out.HealthPortsAdded, port)
		} else {
			out.HealthPortsRemoved = append(out.HealthPortsRemoved, port)
		}
	}
	return out
}

// toggle records that values were added or removed. A value that was added and
// then removed, or the other way round, is not a difference in the end.
func toggle[T comparable](net map[T]bool, some []T, added bool) {
	for _, v := range some {
		if was, ok := net[v]; ok && was != added {
			delete(net, v)
		} else {
			net[v] = added
		}
	}
}
