package dataplanetest

import (
	"net/netip"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// OK ends the test unless everything was programmed.
func OK(t testing.TB, r dataplane.Result) dataplane.Result {
	t.Helper()
	if r.Err != nil || len(r.Failed) > 0 {
		t.Fatalf("not programmed: %v %v", r.Err, r.Failed)
	}
	return r
}

// Settings are those of a node with pods and addresses of both families.
func Settings() plan.Settings {
	return plan.Settings{
		IPv4:           plan.Detector{Sources: testkit.Prefixes("10.244.0.0/16")},
		IPv6:           plan.Detector{Sources: testkit.Prefixes("fd00:10:244::/56")},
		NodePortIPs:    testkit.Addrs("192.0.2.10", "2001:db8::10"),
		MasqueradeMark: 1 << 14,
	}
}

// Endpoints reads addresses with ports.
func Endpoints(texts ...string) []plan.Endpoint {
	var out []plan.Endpoint
	for _, text := range texts {
		out = append(out, plan.Endpoint{AddrPort: netip.MustParseAddrPort(text)})
	}
	return out
}

// Key reads that of a frontend.
func Key(text string, p model.Protocol) plan.Key {
	at := netip.MustParseAddrPort(text)
	return plan.Key{Addr: at.Addr(), Port: at.Port(), Protocol: p}
}

// Destination reads that of a frontend, which for a node port is reached by one of the
// node's addresses.
func Destination(text string, p model.Protocol, destination string) dataplane.Destination {
	at := dataplane.Destination{Key: Key(text, p)}
	at.IP = at.Addr
	if destination != "" {
		at.IP = netip.MustParseAddr(destination)
	}
	return at
}

func name(s string) model.Name { return model.Name{Namespace: "test", Name: s} }

// Variety returns a frontend of every kind, in both families.
func Variety() *plan.Desired {
	d := &plan.Desired{Settings: Settings(), Frontends: map[plan.Key]*plan.Frontend{}, ClusterIPs: map[netip.Addr]struct{}{}}
	d.Settings.DropInvalid = true
	d.Settings.ServiceCIDRs = testkit.Prefixes("10.96.0.0/12", "fd00:10:96::/112")
	add := func(service string, f plan.Frontend) {
		f.Service, f.Port = name(service), "p"
		d.Frontends[f.Key] = &f
	}
	for _, family := range []struct {
		cluster, lb, any string
		pool             []plan.Endpoint
		sources          []netip.Prefix
	}{
		{"10.96.0.1", "198.51.100.1", "0.0.0.0", Endpoints("10.244.0.1:8080", "10.244.0.2:8080"), testkit.Prefixes("10.0.0.0/8", "192.0.2.128/25")},
		{"[fd00:10:96::1]", "[2001:db8:1::1]", "[::]", Endpoints("[fd00:10:244::1]:8080", "[fd00:10:244::2]:8080"), testkit.Prefixes("2001:db8::/32")},
	} {
		family.pool[0].Local = true
		all, nowhere := plan.Route{Endpoints: family.pool}, plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}
		local := nowhere
		local.Endpoints = family.pool[:1]
		add("web", plan.Frontend{Key: Key(family.cluster+":80", model.TCP), Route: all, Masquerade: plan.MasqueradeOffCluster})
		add("dns", plan.Frontend{Key: Key(family.cluster+":53", model.UDP), Route: all, Affinity: 10800})
		add("sctp", plan.Frontend{Key: Key(family.cluster+":99", model.SCTP)})
		add("gone", plan.Frontend{Key: Key(family.cluster+":98", model.TCP), Route: nowhere})
		add("lb", plan.Frontend{Key: Key(family.lb+":443", model.TCP), Kind: plan.LoadBalancerIP, Route: all, Outside: &local,
			Masquerade: plan.MasqueradeNode, Filtered: true, Sources: family.sources})
		add("lb", plan.Frontend{Key: Key(family.any+":30080", model.TCP), Kind: plan.NodePort, Route: all, Outside: &nowhere, Masquerade: plan.MasqueradeNode})
		add("np", plan.Frontend{Key: Key(family.any+":30081", model.UDP), Kind: plan.NodePort, Route: all, Masquerade: plan.MasqueradeAlways})
		add("empty", plan.Frontend{Key: Key(family.lb+":444", model.TCP), Kind: plan.LoadBalancerIP, Filtered: true, Sources: family.sources})
		add("empty", plan.Frontend{Key: Key(family.any+":30082", model.TCP), Kind: plan.NodePort})
		d.ClusterIPs[Key(family.cluster+":80", model.TCP).Addr] = struct{}{}
	}
	d.HealthChecks = map[model.Name]plan.HealthCheck{name("lb"): {Service: name("lb"), Port: 31000}}
	return d
}
