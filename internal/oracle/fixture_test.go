package oracle_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/plan"
)

// The conditions that endpoints have in practice.
const (
	ready   = model.Ready | model.Serving
	leaving = model.Serving | model.Terminating
	failing = model.Terminating
	unready = model.Conditions(0)
)

const (
	thisNode = "node-a"
	farNode  = "node-b"
)

// places gives the addresses of each family their names. This node is node;
// pod-* run on it, far-* on another node.
var places = map[model.Family]map[string]string{
	model.IPv4: {
		"pod-1": "10.1.1.1", "pod-2": "10.1.1.2", "far-1": "10.1.2.1", "far-2": "10.1.2.2",
		"node": "192.0.2.10", "node-2nd": "192.0.2.11", "bridge": "10.1.1.254",
		"outside": "203.0.113.5", "elsewhere": "198.18.0.9",
		"cluster": "10.96.0.1", "cluster-2": "10.96.0.2", "unused": "10.96.0.99",
		"external": "198.51.100.1", "lb": "198.51.100.65",
		"loopback": "127.0.0.1", "link-local": "169.254.7.7", "multicast": "224.0.0.9", "nowhere": "0.0.0.0",
	},
	model.IPv6: {
		"pod-1": "fd01:0:0:1::1", "pod-2": "fd01:0:0:1::2", "far-1": "fd01:0:0:2::1", "far-2": "fd01:0:0:2::2",
		"node": "2001:db8::10", "node-2nd": "2001:db8::11", "bridge": "fd01:0:0:1::fe",
		"outside": "2001:db8:5::5", "elsewhere": "2001:db8:9::9",
		"cluster": "fd96::1", "cluster-2": "fd96::2", "unused": "fd96::99",
		"external": "2001:db8:e::1", "lb": "2001:db8:f::1",
		"loopback": "::1", "link-local": "fe80::7", "multicast": "ff02::9", "nowhere": "::",
	},
}

// ranges names the ranges of each family.
var ranges = map[model.Family]map[string]string{
	model.IPv4: {
		"node pods": "10.1.1.0/24", "cluster pods": "10.1.0.0/16", "services": "10.96.0.0/24",
		"outside": "203.0.113.0/24", "nodes": "192.0.2.0/24", "all": "0.0.0.0/0",
	},
	model.IPv6: {
		"node pods": "fd01:0:0:1::/64", "cluster pods": "fd01::/48", "services": "fd96::/112",
		"outside": "2001:db8:5::/48", "nodes": "2001:db8::/64", "all": "::/0",
	},
}

func addrIn(f model.Family, name string) netip.Addr { return netip.MustParseAddr(places[f][name]) }

func rangeIn(f model.Family, name string) netip.Prefix { return netip.MustParsePrefix(ranges[f][name]) }

func bothFamilies[T any](in func(model.Family, string) T, names ...string) []T {
	var out []T
	for _, name := range names {
		out = append(out, in(model.IPv4, name), in(model.IPv6, name))
	}
	return out
}

// setting is a world, looked at in one family. It starts with one dual-stack
// Service, default/web, port 80 to 8080, node port 30080, with one endpoint on
// this node and one on another; pods are detected by cluster CIDR.
type setting struct {
	oracle.World
	family model.Family
	web    *model.Service
	slice  *model.Slice // that of the family
}

func newSetting(f model.Family) *setting {
	web := newService("web", "cluster")
	web.ExternalIPs = bothFamilies(addrIn, "external")
	web.LoadBalancerIPs = bothFamilies(addrIn, "lb")
	web.Ports[0].NodePort = 30080
	s := &setting{family: f, web: web}
	s.World = oracle.World{
		Config: plan.Config{
			NodeName:     thisNode,
			DetectLocal:  plan.DetectClusterCIDR,
			ClusterCIDRs: bothFamilies(rangeIn, "cluster pods"),
		},
		Services: []*model.Service{web},
		Node: &model.Node{
			Name:     thisNode,
			IPs:      bothFamilies(addrIn, "node"),
			PodCIDRs: bothFamilies(rangeIn, "node pods"),
		},
		HostIPs:      bothFamilies(addrIn, "loopback", "link-local", "node", "node-2nd", "bridge"),
		ServiceCIDRs: []*model.ServiceCIDR{{Name: "kubernetes", Prefixes: bothFamilies(rangeIn, "services")}},
	}
	for _, family := range model.Families {
		slice := s.newSlice("web-"+family.String(), "web", family)
		slice.Endpoints = []model.Endpoint{newEndpoint(family, "pod-1", ready), newEndpoint(family, "far-1", ready)}
		if family == f {
			s.slice = slice
		}
	}
	return s
}

func newService(name, clusterIP string) *model.Service {
	return &model.Service{
		Name:       model.Name{Namespace: "default", Name: name},
		ClusterIPs: bothFamilies(addrIn, clusterIP),
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
}

// newSlice adds an empty slice with the port that newService expects.
func (s *setting) newSlice(name, service string, f model.Family) *model.Slice {
	slice := &model.Slice{
		Name:    model.Name{Namespace: "default", Name: name},
		Service: service,
		Family:  f,
		Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	s.Slices = append(s.Slices, slice)
	return slice
}

func newEndpoint(f model.Family, name string, c model.Conditions) model.Endpoint {
	e := model.Endpoint{Addr: addrIn(f, name), Node: thisNode, Conditions: c}
	if strings.HasPrefix(name, "far-") {
		e.Node = farNode
	}
	return e
}

func (s *setting) addr(name string) netip.Addr { return addrIn(s.family, name) }

// add puts an endpoint into the slice of the family.
func (s *setting) add(name string, c model.Conditions) *model.Endpoint {
	s.slice.Endpoints = append(s.slice.Endpoints, newEndpoint(s.family, name, c))
	return &s.slice.Endpoints[len(s.slice.Endpoints)-1]
}

// endpoints replaces the endpoints of the family.
func (s *setting) endpoints(c model.Conditions, names ...string) {
	s.slice.Endpoints = nil
	for _, name := range names {
		s.add(name, c)
	}
}

// packet reads "client > address:port/protocol". Pods come through an
// interface of their own, the node through none, others through eth0.
func (s *setting) packet(t *testing.T, text string) oracle.Packet {
	t.Helper()
	client, to, _ := strings.Cut(text, " > ")
	name, rest, _ := strings.Cut(to, ":")
	portText, protocol, _ := strings.Cut(rest, "/")
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || places[s.family][client] == "" || places[s.family][name] == "" {
		t.Fatalf("cannot read packet %q", text)
	}
	p := oracle.Packet{
		Source: s.addr(client), Destination: s.addr(name), Port: uint16(port), Interface: "eth0",
		Protocol: map[string]model.Protocol{"": model.TCP, "udp": model.UDP, "sctp": model.SCTP}[protocol],
	}
	switch {
	case strings.HasPrefix(client, "pod-"):
		p.Interface = "veth-" + client
	case slices.Contains(s.HostIPs, p.Source):
		p.Interface = ""
	}
	return p
}

// describe writes a verdict as "action [service:] endpoints [affinity n]". A
// star marks a masqueraded client, web and port 8080 go without saying.
func (s *setting) describe(v oracle.Verdict) string {
	words := []string{v.Action.String()}
	if v.Service != (model.Name{}) && v.Service != s.web.Name {
		words = append(words, v.Service.Name+":")
	}
	for _, e := range v.Endpoints {
		name := e.Addr().String()
		for short, long := range places[s.family] {
			if long == name {
				name = short
			}
		}
		if e.Port() != 8080 {
			name += ":" + strconv.Itoa(int(e.Port()))
		}
		if v.MasqueradedTo[e] {
			name += "*"
		}
		words = append(words, name)
	}
	if v.Affinity != 0 {
		words = append(words, fmt.Sprint("affinity ", v.Affinity))
	}
	return strings.Join(words, " ")
}

// scenario is a change to the setting and what happens then to packets, as
// lines "client > address:port/protocol = verdict".
type scenario struct {
	name  string
	given func(*setting)
	want  []string
}

// play runs scenarios in both families.
func play(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, sc := range scenarios {
		for _, family := range model.Families {
			t.Run(sc.name+"/"+family.String(), func(t *testing.T) {
				s := newSetting(family)
				if sc.given != nil {
					sc.given(s)
				}
				var got []string
				for _, line := range sc.want {
					packet, _, _ := strings.Cut(line, " = ")
					v := oracle.Decide(s.World, s.packet(t, packet))
					got = append(got, packet+" = "+s.describe(v))
				}
				if diff := cmp.Diff(sc.want, got); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
			})
		}
	}
}
