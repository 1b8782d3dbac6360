package nodeproblem

import (
	"fmt"
	"strings"
	"testing"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// A cluster CIDR in which pods are not, or that lacks a family, is reported; one that may be
// right is not.
func TestClusterCIDR(t *testing.T) {
	for _, tt := range []struct {
		name      string
		cidrs     string
		services  string // ClusterIPs
		endpoints string // address@node
		noIPv6    bool
		want      []string
	}{
		{name: "pods are in it", cidrs: "10.244.0.0/16", services: "10.96.0.1", endpoints: "10.244.1.1@node1 10.9.9.9@node2"},
		{name: "no pod is in it", cidrs: "172.16.0.0/16", services: "10.96.0.1", endpoints: "10.244.1.1@node1 10.244.2.1@node2 192.0.2.10@node1",
			want: []string{"none of the 2 addresses of endpoints is in 172.16.0.0/16, such as 10.244.1.1"}},
		{name: "no pod of another node is", cidrs: "172.16.0.0/16", services: "10.96.0.1", endpoints: "10.244.2.1@node2 10.244.2.2@node2",
			want: []string{"none of the 2 addresses"}},
		{name: "only programs of the hosts", cidrs: "172.16.0.0/16", services: "10.96.0.1", endpoints: "192.0.2.10@node1 192.0.2.11@node2 192.0.2.12@node3 203.0.113.1@"},
		{name: "no endpoints", cidrs: "172.16.0.0/16", services: "10.96.0.1"},
		{name: "one family is wrong", cidrs: "10.244.0.0/16 fd00:1::/48", services: "10.96.0.1 fd00:10:96::1", endpoints: "10.244.1.1@node1 fd00:10:244::1@node1",
			want: []string{"none of the 1 addresses of endpoints is in fd00:1::/48"}},
		{name: "a family is missing", cidrs: "10.244.0.0/16", services: "10.96.0.1 fd00:10:96::1", endpoints: "10.244.1.1@node1",
			want: []string{"it has no IPv6 range, but Service default/web has an IPv6 address"}},
		{name: "a family is missing that the node has not", cidrs: "10.244.0.0/16", services: "10.96.0.1 fd00:10:96::1", endpoints: "10.244.1.1@node1", noIPv6: true},
		{name: "none is configured", services: "10.96.0.1", endpoints: "10.244.1.1@node1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := model.NewState()
			state.Apply(&model.Dirty{}, model.SetHostIPs{IPs: testkit.Addrs("192.0.2.10")}, model.SetService{Service: &model.Service{
				Name: model.Name{Namespace: "default", Name: "web"}, ClusterIPs: testkit.Addrs(strings.Fields(tt.services)...),
			}})
			for i, e := range strings.Fields(tt.endpoints) {
				at, node, _ := strings.Cut(e, "@")
				addr := testkit.Addrs(at)[0]
				state.Apply(&model.Dirty{}, model.SetSlice{Slice: &model.Slice{
					Name: model.Name{Namespace: "default", Name: fmt.Sprint("web-", i)}, Service: "web", Family: model.FamilyOf(addr),
					Endpoints: []model.Endpoint{{Addr: addr, Node: node}},
				}})
			}
			cfg := plan.Config{NodeName: "node1", NoIPv6: tt.noIPv6, DetectLocal: plan.DetectClusterCIDR, ClusterCIDRs: testkit.Prefixes(strings.Fields(tt.cidrs)...)}
			got := ClusterCIDR(&cfg, state)
			if len(got) != len(tt.want) {
				t.Fatalf("%v, want %q", got, tt.want)
			}
			for i, p := range got {
				if !strings.Contains(p.Reason, tt.want[i]) || !strings.Contains(p.Remedy, "clusterCIDR") {
					t.Errorf("%v, want %q", p, tt.want[i])
				}
			}
		})
	}
}
