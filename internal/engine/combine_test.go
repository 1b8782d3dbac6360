package engine

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/plan"
)

func TestCombine(t *testing.T) {
	frontend := func(addr string, version uint32) *plan.Frontend {
		return &plan.Frontend{Key: webKey(addr), Affinity: version}
	}
	a, b := webKey("10.0.0.1"), webKey("10.0.0.2")
	tests := []struct {
		name string
		in   []*plan.Change
		want *plan.Change
	}{{
		name: "one change is itself",
		in:   []*plan.Change{{Revision: 3, Removed: []plan.Key{b, a}}},
		want: &plan.Change{Revision: 3, Removed: []plan.Key{b, a}},
	}, {
		name: "the later version of a frontend counts",
		in: []*plan.Change{
			{Revision: 1, Set: []*plan.Frontend{frontend("10.0.0.2", 1), frontend("10.0.0.1", 1)}},
			{Revision: 2, Set: []*plan.Frontend{frontend("10.0.0.2", 2)}},
		},
		want: &plan.Change{Revision: 2, Set: []*plan.Frontend{frontend("10.0.0.1", 1), frontend("10.0.0.2", 2)}},
	}, {
		name: "what was set and then removed is removed, for the kernel may have an older version",
		in: []*plan.Change{
			{Revision: 1, Set: []*plan.Frontend{frontend("10.0.0.1", 1)}},
			{Revision: 2, Removed: []plan.Key{a}},
		},
		want: &plan.Change{Revision: 2, Removed: []plan.Key{a}},
	}, {
		name: "what was removed and then set is set",
		in: []*plan.Change{
			{Revision: 1, Removed: []plan.Key{a, b}},
			{Revision: 2, Set: []*plan.Frontend{frontend("10.0.0.1", 1)}},
		},
		want: &plan.Change{Revision: 2, Set: []*plan.Frontend{frontend("10.0.0.1", 1)}, Removed: []plan.Key{b}},
	}, {
		name: "the kernel is given what it has not been given before, and nothing else",
		in: []*plan.Change{
			{Set: []*plan.Frontend{frontend("10.0.0.1", 1)}, Serving: []*plan.Frontend{frontend("10.0.0.2", 1), frontend("10.0.0.3", 1)}},
			{Set: []*plan.Frontend{frontend("10.0.0.3", 2)}, Serving: []*plan.Frontend{frontend("10.0.0.1", 2), frontend("10.0.0.2", 2)}},
		},
		want: &plan.Change{
			Set:     []*plan.Frontend{frontend("10.0.0.1", 2), frontend("10.0.0.3", 2)},
			Serving: []*plan.Frontend{frontend("10.0.0.2", 2)},
		},
	}, {
		name: "a ClusterIP that came and went, or went and came, is no difference",
		in: []*plan.Change{
			{ClusterIPsAdded: []netip.Addr{a.Addr}, ClusterIPsRemoved: []netip.Addr{b.Addr}},
			{ClusterIPsAdded: []netip.Addr{b.Addr}, ClusterIPsRemoved: []netip.Addr{a.Addr}},
		},
		want: &plan.Change{},
	}, {
		name: "ClusterIPs of all changes are kept",
		in: []*plan.Change{
			{ClusterIPsAdded: []netip.Addr{b.Addr}},
			{ClusterIPsAdded: []netip.Addr{a.Addr}, ClusterIPsRemoved: []netip.Addr{netip.IPv6Loopback()}},
		},
		want: &plan.Change{ClusterIPsAdded: []netip.Addr{a.Addr, b.Addr}, ClusterIPsRemoved: []netip.Addr{netip.IPv6Loopback()}},
	}, {
		name: "health check ports that moved, came or went",
		in: []*plan.Change{
			{HealthPortsAdded: []uint16{1, 2}, HealthPortsRemoved: []uint16{3}},
			{HealthPortsAdded: []uint16{1, 4}, HealthPortsRemoved: []uint16{1, 2}},
		},
		want: &plan.Change{HealthPortsAdded: []uint16{1, 4}, HealthPortsRemoved: []uint16{3}},
	}, {
		name: "the last settings count, and what changed stays said",
		in: []*plan.Change{
			{Settings: &plan.Settings{MasqueradeMark: 1}, Problems: true},
			{Settings: &plan.Settings{MasqueradeMark: 2}, HealthChecks: true},
			{},
		},
		want: &plan.Change{Settings: &plan.Settings{MasqueradeMark: 2}, Problems: true, HealthChecks: true},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, combine(tt.in), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("combined (-want +got):\n%s", diff)
			}
		})
	}
}
