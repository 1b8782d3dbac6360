//go:build linux

package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// A packet meets few rules, however many Services, ports and endpoints there are, and
// whether it is for one of them or not.
func TestPacketsMeetFewRules(t *testing.T) {
	testkit.NotInGuest(t, "its kernel is a fake")
	v4 := netip.MustParseAddr
	for _, tc := range []struct {
		name    string
		desired *plan.Desired
		table   string
		enter   string
		packet  packet
		hit     bool
		most    int
	}{
		{"last of 10,000 Services", cluster(10_000, 2), nat, servicesChain, packet{netip.AddrPortFrom(v4("10.96.39.16"), 80), model.TCP}, true, 60},
		{"port that no Service has", cluster(10_000, 2), nat, servicesChain, packet{netip.AddrPortFrom(v4("10.96.39.16"), 81), model.TCP}, false, 60},
		{"address beside 10,000 Services", cluster(10_000, 2), nat, servicesChain, packet{netip.AddrPortFrom(v4("10.128.0.1"), 80), model.TCP}, false, 10},
		{"one of 1,000 ports of an address", ports(1000), nat, servicesChain, packet{netip.AddrPortFrom(v4("10.96.0.1"), 1999), model.TCP}, true, 60},
		{"one of 5,000 node ports", nodePorts(5000), nat, servicesChain, packet{netip.AddrPortFrom(v4("192.0.2.10"), 34999), model.TCP}, true, 60},
		{"one of 10,000 Services without endpoints", cluster(10_000, 0), filter, servicesChain, packet{netip.AddrPortFrom(v4("10.96.39.16"), 80), model.TCP}, true, 60},
		{"one of 100,000 endpoints", cluster(1, 100_000), nat, servicesChain, packet{netip.AddrPortFrom(v4("10.96.0.1"), 80), model.TCP}, true, 80},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newFakeDriver()
			ok(t, h.dataplane(t).Reconcile(context.Background(), tc.desired))
			w := h.tables[iptables.Table{Family: model.IPv4, Name: tc.table}].walk(tc.enter, tc.packet)
			t.Logf("%d rules, ended at %q", w.met, w.last)
			if w.met > tc.most || (w.last != "") != tc.hit {
				t.Errorf("met %d rules and ended at %q, want at most %d", w.met, w.last, tc.most)
			}
			for name, rules := range h.tables[iptables.Table{Family: model.IPv4, Name: tc.table}].chains {
				if len(rules) > poolRules {
					t.Errorf("chain %s has %d rules", name, len(rules))
				}
			}
		})
	}
}

// ports is one address with n ports.
func ports(n int) *plan.Desired {
	d := cluster(0, 0)
	for i := range n {
		k := plan.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: uint16(1000 + i), Protocol: model.TCP}
		d.Frontends[k] = &plan.Frontend{Key: k, Service: name("web"), Port: fmt.Sprint("p", i), Route: plan.Route{Endpoints: endpoints("10.244.0.1:80")}}
	}
	return d
}

// nodePorts is n node ports.
func nodePorts(n int) *plan.Desired {
	d := cluster(0, 0)
	for i := range n {
		k := plan.Key{Addr: netip.IPv4Unspecified(), Port: uint16(30000 + i), Protocol: model.TCP}
		d.Frontends[k] = &plan.Frontend{Key: k, Kind: plan.NodePort, Service: name(fmt.Sprint("web", i)), Masquerade: plan.MasqueradeAlways,
			Route: plan.Route{Endpoints: endpoints("10.244.0.1:80", "10.244.0.2:80")}}
	}
	return d
}

// A change writes only what it touches.
func TestChangeWritesFewRules(t *testing.T) {
	testkit.NotInGuest(t, "its kernel is a fake")
	ctx := context.Background()
	for _, tc := range []struct {
		name    string
		desired *plan.Desired
		most    int
	}{
		{"10,000 Services", cluster(10_000, 2), chainRules},
		{"one Service with 100,000 endpoints", cluster(1, 100_000), poolRules + 8*4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newFakeDriver().dataplane(t)
			ok(t, d.Reconcile(ctx, tc.desired))
			f := *tc.desired.Frontends[key("10.96.0.1:80", model.TCP)]
			f.Route.Endpoints = f.Route.Endpoints[1:]
			r := ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{&f}}))
			t.Logf("%d rules in %d transactions", r.Elements, r.Transactions)
			if r.Transactions != 1 || r.Elements > tc.most {
				t.Errorf("%d rules in %d transactions, want at most %d in one", r.Elements, r.Transactions, tc.most)
			}
		})
	}
}

func TestHealthCheckPortsAreAccepted(t *testing.T) {
	ctx := context.Background()
	h := newFakeDriver()
	d := h.dataplane(t)
	ok(t, d.Reconcile(ctx, variety()))
	for _, step := range []struct {
		name   string
		change plan.Change
		port   uint16
		want   bool
	}{
		{"there from the start", plan.Change{}, 31000, true},
		{"added", plan.Change{HealthPortsAdded: []uint16{31001}}, 31001, true},
		{"gone to another Service", plan.Change{HealthPortsAdded: []uint16{31001}, HealthPortsRemoved: []uint16{31001}}, 31001, true},
		{"removed", plan.Change{HealthPortsRemoved: []uint16{31000}}, 31000, false},
	} {
		ok(t, d.Apply(ctx, &step.change))
		for _, f := range model.Families {
			w := h.tables[iptables.Table{Family: f, Name: filter}].walk(nodePortsChain, packet{netip.AddrPortFrom(netip.IPv4Unspecified(), step.port), model.TCP})
			if (w.last != "") != step.want {
				t.Errorf("%s: port %d of %s ends at %q", step.name, step.port, f, w.last)
			}
		}
	}
}
