package manifest

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
)

func FuzzDecode(f *testing.F) {
	f.Add([]byte(web+"---\n"+webSlice), false)
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},`+
		`"spec":{"type":"LoadBalancer","clusterIPs":["10.96.0.1","fd00::1"],"sessionAffinity":"ClientIP","loadBalancerSourceRanges":["x"],`+
		`"ports":[{"port":1,"nodePort":2}]},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}]}`), true)
	f.Add([]byte("apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 10.0.0.1}, {ip: ::1}], ports: [{port: 1}]}]\n"), false)
	f.Add([]byte("apiVersion: v1\nkind: Node\nmetadata: {name: me}\nspec: {podCIDR: 10.0.0.0/24}\nstatus: {addresses: [{type: InternalIP, address: 10.0.0.1}]}\n"), false)
	f.Add([]byte("apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: a}\nspec: {cidrs: [10.96.0.0/16]}\n"), false)
	f.Add([]byte("a: &a {x: 1}\nb: {<<: *a, ? [k] : v}\n"), false)
	f.Add([]byte("%YAML 1.1\n---\n...\n--- !!str\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, json bool) {
		file := "a.yaml"
		if json {
			file = "a.json"
		}
		events, problems := Decode(file, data, "me")
		for _, e := range events {
			checkEvent(t, e)
		}
		for _, p := range problems {
			if p.File != file || p.Kind == "" || p.Reason == "" || p.Remedy == "" {
				t.Errorf("a problem does not say what, why and what to do: %+v", p)
			}
		}
	})
}

// checkEvent holds an event against what the model promises of its values.
func checkEvent(t *testing.T, e model.Event) {
	switch e := e.(type) {
	case model.SetService:
		checkAddrs(t, e.ClusterIPs, e.ExternalIPs, e.LoadBalancerIPs)
		checkPrefixes(t, e.SourceRanges)
		if e.Name.Name == "" || e.Name.Namespace == "" || len(e.Ports) == 0 || len(e.ClusterIPs) == 0 || e.Affinity > 86400 {
			t.Errorf("not a Service: %+v", e.Service)
		}
		for _, p := range e.Ports {
			checkPort(t, p.Port, p.Protocol)
		}
	case model.SetSlice:
		if e.Name.Name == "" || e.Name.Namespace == "" || e.Service == "" {
			t.Errorf("not a slice: %+v", e.Slice)
		}
		for _, p := range e.Ports {
			checkPort(t, p.Port, p.Protocol)
		}
		for _, endpoint := range e.Endpoints {
			checkAddrs(t, []netip.Addr{endpoint.Addr})
			if endpoint.Addr.IsValid() && model.FamilyOf(endpoint.Addr) != e.Family {
				t.Errorf("%s is in a slice of family %s", endpoint.Addr, e.Family)
			}
		}
	case model.SetNode:
		checkAddrs(t, e.IPs)
		checkPrefixes(t, e.PodCIDRs)
	case model.SetServiceCIDR:
		checkPrefixes(t, e.Prefixes)
	default:
		t.Errorf("unexpected event %T", e)
	}
}

func checkAddrs(t *testing.T, lists ...[]netip.Addr) {
	for _, list := range lists {
		for _, a := range list {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
				t.Errorf("not an address of the model: %v", a)
			}
		}
	}
}

func checkPrefixes(t *testing.T, list []netip.Prefix) {
	for _, p := range list {
		if !p.IsValid() || p != p.Masked() {
			t.Errorf("not a prefix of the model: %v", p)
		}
	}
}

func checkPort(t *testing.T, port uint16, protocol model.Protocol) {
	if port == 0 || protocol != model.TCP && protocol != model.UDP && protocol != model.SCTP {
		t.Errorf("not a port of the model: %d/%v", port, protocol)
	}
}
