package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// TestUnusedNodesAreAWarning: those that somebody can do something about, by family and reason.
func TestUnusedNodesAreAWarning(t *testing.T) {
	node := func(name, ip string, s model.PathState) plan.DirectNode {
		return plan.DirectNode{Name: name, IPv4: model.Path{Addr: netip.MustParseAddr(ip), State: s}}
	}
	self := node("here", "192.0.2.9", model.PathUnknown)
	self.Self = true
	r := &plan.DirectReturn{Nodes: []plan.DirectNode{node("a", "192.0.2.1", model.PathProven), node("b", "192.0.2.2", model.PathFiltered),
		node("c", "192.0.2.3", model.PathFiltered), node("d", "192.0.2.4", model.PathUnknown), node("e", "192.0.2.5", model.PathNoMAC), self}}
	got := unusedNodes(r)
	if len(got) != 1 || !strings.Contains(got[0].Reason, "2 nodes (IPv4) not used, so that their clients are masqueraded: b, c") ||
		!strings.Contains(got[0].Remedy, "source check") {
		t.Errorf("the warnings are %v", got)
	}
	if len(unusedNodes(nil)) > 0 {
		t.Error("there are warnings where direct return is switched off")
	}
}
