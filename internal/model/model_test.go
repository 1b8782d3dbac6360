package model

import (
	"net/netip"
	"slices"
	"testing"
)

func TestPrimaryIP(t *testing.T) {
	ips := []netip.Addr{
		netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1"),
		netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2"),
	}
	tests := []struct {
		name   string
		in     []netip.Addr
		v4, v6 netip.Addr
	}{
		{"dual-stack", ips, ips[1], ips[0]},
		{"IPv4 only", ips[1:3], ips[1], netip.Addr{}},
		{"IPv6 only", ips[:1], netip.Addr{}, ips[0]},
		{"none", nil, netip.Addr{}, netip.Addr{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := &Node{IPs: tt.in}
			if got := node.PrimaryIP(IPv4); got != tt.v4 {
				t.Errorf("IPv4: %v, want %v", got, tt.v4)
			}
			if got := node.PrimaryIP(IPv6); got != tt.v6 {
				t.Errorf("IPv6: %v, want %v", got, tt.v6)
			}
		})
	}
}

func TestConditionsHas(t *testing.T) {
	tests := []struct {
		name     string
		in, want Conditions
		has      bool
	}{
		{"one of two", Ready | Serving, Ready, true},
		{"both", Serving | Terminating, Serving | Terminating, true},
		{"one missing", Terminating, Serving | Terminating, false},
		{"none", 0, Ready, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.Has(tt.want); got != tt.has {
				t.Errorf("%b has %b: %v", tt.in, tt.want, got)
			}
		})
	}
}

func TestCompareNames(t *testing.T) {
	names := []Name{{"b", "a"}, {"a", "c"}, {"a", "b"}, {"a", "c"}}
	slices.SortFunc(names, Name.Compare)
	if want := []Name{{"a", "b"}, {"a", "c"}, {"a", "c"}, {"b", "a"}}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

func TestStrings(t *testing.T) {
	tests := []struct{ got, want string }{
		{Name{"default", "web"}.String(), "default/web"},
		{PolicyCluster.String(), "Cluster"}, {PolicyLocal.String(), "Local"},
		{Problem{Object: Object{Kind: "Service", Namespace: "a", Name: "b"}, Field: "spec.ports", Reason: "is odd", Remedy: "mend it"}.String(), "Service a/b: spec.ports: is odd (mend it)"},
		{Problem{Object: Object{Kind: "Service", Namespace: "a", Name: "b"}, Reason: "is odd"}.String(), "Service a/b: is odd"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
