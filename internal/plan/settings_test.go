package plan

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/model"
)

func TestDetectors(t *testing.T) {
	pods := prefixes("10.1.0.0/24", "fd00:1::/80")
	node := &model.Node{Name: here, PodCIDRs: pods}
	tests := []struct {
		name   string
		cfg    Config
		node   *model.Node
		v4, v6 Detector
	}{
		{"none", Config{}, node, Detector{}, Detector{}},
		{
			"cluster CIDRs", Config{DetectLocal: DetectClusterCIDR, ClusterCIDRs: prefixes("fd00:1::/48", "10.1.0.1/16")}, node,
			Detector{Sources: prefixes("10.1.0.0/16")}, Detector{Sources: prefixes("fd00:1::/48")},
		},
		{
			"cluster CIDR of one family", Config{DetectLocal: DetectClusterCIDR, ClusterCIDRs: prefixes("fd00:1::/48")}, node,
			Detector{}, Detector{Sources: prefixes("fd00:1::/48")},
		},
		{
			"the node's pod CIDRs", Config{DetectLocal: DetectNodeCIDR}, node,
			Detector{Sources: pods[:1]}, Detector{Sources: pods[1:]},
		},
		{"pod CIDRs of an unknown node", Config{DetectLocal: DetectNodeCIDR}, nil, Detector{}, Detector{}},
		{"a node without pod CIDRs", Config{DetectLocal: DetectNodeCIDR}, &model.Node{Name: here}, Detector{}, Detector{}},
		{
			"a bridge", Config{DetectLocal: DetectBridgeInterface, BridgeInterface: "cbr0"}, nil,
			Detector{Interface: "cbr0"}, Detector{Interface: "cbr0"},
		},
		{
			"an interface prefix", Config{DetectLocal: DetectInterfaceNamePrefix, InterfaceNamePrefix: "veth"}, nil,
			Detector{InterfacePrefix: "veth"}, Detector{InterfacePrefix: "veth"},
		},
		{"no prefix", Config{DetectLocal: DetectInterfaceNamePrefix}, nil, Detector{}, Detector{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := fromScratch(tt.cfg, stateOf(model.SetNode{Node: tt.node})).Settings
			wantEqual(t, "IPv4", tt.v4, got.Detector(model.IPv4))
			wantEqual(t, "IPv6", tt.v6, got.Detector(model.IPv6))
			wantEqual(t, "enabled", len(tt.v4.Sources) > 0 || tt.v4.Interface+tt.v4.InterfacePrefix != "", got.IPv4.Enabled())
		})
	}
}

func TestNodePortIPs(t *testing.T) {
	node := &model.Node{Name: here, IPs: addrs("192.0.2.1", "192.0.2.2", "2001:db8:2::1")}
	host := addrs("127.0.0.1", "::1", "169.254.0.5", "fe80::1%eth0", "0.0.0.0",
		"192.0.2.3", "192.0.2.1", "10.9.0.1", "2001:db8:2::3", "2001:db8:2::1", "192.0.2.3")
	tests := []struct {
		name string
		in   NodePortAddresses
		node *model.Node
		want []string
	}{
		{"nothing said", NodePortAddresses{}, node, []string{"192.0.2.1", "2001:db8:2::1"}},
		{"primary", NodePortAddresses{Primary: true}, node, []string{"192.0.2.1", "2001:db8:2::1"}},
		{"primary of an unknown node", NodePortAddresses{Primary: true}, nil, []string{"192.0.2.3", "2001:db8:2::3"}},
		{"primary of a node of one family", NodePortAddresses{}, &model.Node{IPs: addrs("2001:db8:2::9")}, []string{"2001:db8:2::9"}},
		{
			"all", NodePortAddresses{All: true}, node,
			[]string{"10.9.0.1", "169.254.0.5", "192.0.2.1", "192.0.2.3", "2001:db8:2::1", "2001:db8:2::3", "fe80::1"},
		},
		{
			"prefixes", NodePortAddresses{Prefixes: prefixes("192.0.2.0/24", "2001:db8:2::3/128", "127.0.0.0/8")}, node,
			[]string{"192.0.2.1", "192.0.2.3", "2001:db8:2::3"},
		},
		{
			"primary and all of a family, of a node with an address that is translated before it",
			NodePortAddresses{Primary: true, Prefixes: prefixes("0.0.0.0/0")},
			&model.Node{IPs: addrs("203.0.113.9", "2001:db8:2::9")},
			[]string{"10.9.0.1", "169.254.0.5", "192.0.2.1", "192.0.2.3", "2001:db8:2::9"},
		},
		{"a link-local prefix", NodePortAddresses{Prefixes: prefixes("fe80::/10", "127.0.0.0/8")}, node, []string{"fe80::1"}},
		{"a prefix that nothing is in", NodePortAddresses{Prefixes: prefixes("203.0.113.0/24", "::1/128")}, node, nil},
		{
			"primary and prefixes", NodePortAddresses{Primary: true, Prefixes: prefixes("10.9.0.0/16")}, node,
			[]string{"10.9.0.1", "192.0.2.1", "2001:db8:2::1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := fromScratch(Config{NodePortAddresses: tt.in}, stateOf(model.SetNode{Node: tt.node}, model.SetHostIPs{IPs: host}))
			wantEqual(t, "node port IPs", addrs(tt.want...), d.Settings.NodePortIPs)
		})
	}
}

// All of a family means whatever the routing table calls local.
func TestNodePortsOnEveryLocalAddress(t *testing.T) {
	tests := []struct {
		name   string
		in     NodePortAddresses
		v4, v6 bool
	}{
		{"nothing said", NodePortAddresses{}, false, false},
		{"all", NodePortAddresses{All: true}, true, true},
		{"all and more", NodePortAddresses{All: true, Primary: true, Prefixes: prefixes("192.0.2.0/24")}, true, true},
		{"primary", NodePortAddresses{Primary: true}, false, false},
		{"all of IPv4", NodePortAddresses{Prefixes: prefixes("0.0.0.0/0", "2001:db8::/64")}, true, false},
		{"all of IPv6", NodePortAddresses{Prefixes: prefixes("192.0.2.0/24", "::/0")}, false, true},
		{"ranges of both", NodePortAddresses{Prefixes: prefixes("192.0.2.0/24", "2001:db8::/64")}, false, false},
		{"no word about IPv6", NodePortAddresses{Prefixes: prefixes("192.0.2.0/24")}, false, true},
		{"no word about IPv4", NodePortAddresses{Prefixes: prefixes("2001:db8::/64")}, true, false},
		{"primary for what has no range", NodePortAddresses{Primary: true, Prefixes: prefixes("192.0.2.0/24")}, false, false},
		{"localhost alone", NodePortAddresses{Prefixes: prefixes("127.0.0.0/8", "::1/128")}, false, false},
	}
	byRoute := func(ip netip.Addr) bool {
		return slices.Contains(addrs("203.0.113.5", "2001:db8:5::5", "127.0.0.9", "::1"), ip)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fromScratch(Config{NodePortAddresses: tt.in}, stateOf()).Settings
			wantEqual(t, "every IPv4 address", tt.v4, s.NodePortAll(model.IPv4))
			wantEqual(t, "every IPv6 address", tt.v6, s.NodePortAll(model.IPv6))
			for ip, want := range map[string]bool{
				"203.0.113.5": tt.v4, "2001:db8:5::5": tt.v6, "203.0.113.6": false, "127.0.0.9": false, "::1": false,
			} {
				wantEqual(t, "node ports on "+ip, want, s.HasNodePorts(addrs(ip)[0], byRoute))
			}
		})
	}
}

func TestLoopbackIsNotProgrammed(t *testing.T) {
	state := stateOf(
		model.SetNode{Node: &model.Node{Name: here, IPs: addrs("192.0.2.1")}},
		model.SetHostIPs{IPs: addrs("127.0.0.1", "::1", "192.0.2.1")},
	)
	off := Config{NodePortAddresses: NodePortAddresses{Primary: true, Prefixes: prefixes("127.0.0.0/8", "::1/128")}}
	on := off
	on.NodePortAddresses.Loopback = addrs("127.0.0.1", "::1")
	p := New(off)
	p.Update(state, &model.Dirty{})
	change := p.SetConfig(state, on)
	if change.Settings == nil {
		t.Fatal("that node ports are relayed from loopback addresses is no change")
	}
	wantEqual(t, "loopback IPs", on.NodePortAddresses.Loopback, change.Settings.LoopbackIPs)
	wantEqual(t, "node port IPs", addrs("192.0.2.1"), change.Settings.NodePortIPs)
}

func TestConfiguredNodeIPIsPrimary(t *testing.T) {
	node := &model.Node{Name: here, IPs: addrs("192.0.2.1", "192.0.2.2", "2001:db8:2::1")}
	host := addrs("192.0.2.3", "2001:db8:2::3")
	tests := []struct {
		name string
		in   string
		node *model.Node
		want []string
	}{
		{"IPv4", "198.51.100.7", node, []string{"198.51.100.7", "2001:db8:2::1"}},
		{"IPv6", "2001:db8:7::7", node, []string{"192.0.2.1", "2001:db8:7::7"}},
		{"one that the node has", "192.0.2.2", node, []string{"192.0.2.2", "2001:db8:2::1"}},
		{"a family that the node has not", "2001:db8:7::7", &model.Node{IPs: addrs("192.0.2.1")}, []string{"192.0.2.1", "2001:db8:7::7"}},
		{"the node is unknown", "198.51.100.7", nil, []string{"198.51.100.7", "2001:db8:2::3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{NodeIP: addrs(tt.in)[0]}
			d := fromScratch(cfg, stateOf(model.SetNode{Node: tt.node}, model.SetHostIPs{IPs: host}))
			wantEqual(t, "node port IPs", addrs(tt.want...), d.Settings.NodePortIPs)
		})
	}
}

func TestServiceCIDRs(t *testing.T) {
	tests := []struct {
		name string
		in   [][]string
		want []string
	}{
		{"none", nil, nil},
		{"both families", [][]string{{"fd00:96::/112", "10.96.0.0/12"}}, []string{"10.96.0.0/12", "fd00:96::/112"}},
		{"one within another", [][]string{{"10.96.4.0/24"}, {"10.96.0.0/16"}, {"10.96.0.0/24"}}, []string{"10.96.0.0/16"}},
		{"the same twice", [][]string{{"10.96.0.0/16"}, {"10.96.0.0/16"}}, []string{"10.96.0.0/16"}},
		{"neighbours stay two", [][]string{{"10.97.0.0/16"}, {"10.96.0.0/16"}}, []string{"10.96.0.0/16", "10.97.0.0/16"}},
		{"host bits are masked", [][]string{{"10.96.0.1/16"}}, []string{"10.96.0.0/16"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var events []model.Event
			for i, list := range tt.in {
				events = append(events, model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{
					Name: string(rune('a' + i)), Prefixes: prefixes(list...),
				}})
			}
			d := fromScratch(defaults, stateOf(events...))
			wantEqual(t, "service CIDRs", prefixes(tt.want...), d.Settings.ServiceCIDRs)
		})
	}
}

func TestMasqueradeMarkIsTheConfiguredBit(t *testing.T) {
	for bit, want := range map[uint8]uint32{0: 1, 14: 0x4000, 31: 0x8000_0000} {
		if got := fromScratch(Config{MasqueradeBit: bit}, stateOf()).Settings.MasqueradeMark; got != want {
			t.Errorf("bit %d: mark %#x, want %#x", bit, got, want)
		}
	}
}

func TestMergePrefixesIgnoresInvalidOnes(t *testing.T) {
	wantEqual(t, "merged", prefixes("10.0.0.0/8"), mergePrefixes([]netip.Prefix{{}, prefixes("10.0.0.0/8")[0]}))
}
