package proxy

import (
	"net/netip"
	"testing"

	clientset "k8s.io/client-go/kubernetes"

	"sluice/internal/model"
	"sluice/internal/source"
	"sluice/internal/source/manifest"
)

const (
	webManifest  = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: NodePort, clusterIP: 10.96.0.1, ports: [{port: 80, nodePort: 30080}]}\n"
	nodeManifest = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n"
)

// Manifests without a Node mean no Node to a proxy with --manifests, and
// say nothing of the Node to one that has it from an API server.
func TestPreviewKeepsTheNodeOfTheAPIServer(t *testing.T) {
	now := model.NewState()
	own := &model.Node{Name: "n1"}
	addresses := []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	cidr := &model.ServiceCIDR{Name: "kubernetes"}
	now.Apply(&model.Dirty{}, model.SetNode{Node: own}, model.SetHostIPs{IPs: addresses}, model.SetServiceCIDR{ServiceCIDR: cidr},
		model.SetService{Service: &model.Service{Name: model.Name{Name: "old"}}})
	withManifests := &previewer{proxy: &proxy{}}
	fromServer := &previewer{proxy: &proxy{client: struct{ clientset.Interface }{}}}
	tests := []struct {
		name  string
		proxy *previewer
		in    string
		want  string // the Node's address
		cidrs int
	}{
		{"manifests, without a Node", withManifests, webManifest, "none", 0},
		{"manifests, with a Node", withManifests, nodeManifest, "192.0.2.1", 0},
		{"API server, without a Node", fromServer, webManifest, "own", 1},
		{"API server, with a Node", fromServer, nodeManifest, "192.0.2.1", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			content := manifest.LoadFiles([]manifest.File{{Name: "a.yaml", Data: []byte(test.in)}}, source.Proxy{NodeName: "n1"}, model.NewState())
			state := test.proxy.given(content, now)
			got := "none"
			if node := state.Node(); node == own {
				got = "own"
			} else if node != nil {
				got = node.IPs[0].String()
			}
			if got != test.want || len(state.ServiceCIDRs()) != test.cidrs {
				t.Errorf("the Node is %s and there are %d service CIDRs, want %s and %d", got, len(state.ServiceCIDRs()), test.want, test.cidrs)
			}
			if len(state.HostIPs()) != 1 || state.Service(model.Name{Name: "old"}) != nil {
				t.Errorf("host addresses %v, Services %v", state.HostIPs(), state.Services())
			}
		})
	}
}
