package source

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/model"
)

func TestDirectAnnotations(t *testing.T) {
	const antrea, router, cilium = "service.antrea.io/load-balancer-mode", "kube-router.io/service.dsr", "service.cilium.io/forwarding-mode"
	for _, tt := range []struct{ annotations, want, problem string }{
		{"", "", ""},
		{"sluice/forwarding=direct", "sluice/forwarding", ""},
		{"sluice/forwarding=masquerade", "", ""},
		{antrea + "=dsr", antrea, ""},
		{antrea + "=DSR", antrea, ""},
		{antrea + "=nat", "", ""},
		{router + "=tunnel", router, ""},
		{cilium + "=dsr", cilium, ""},
		{cilium + "=snat", "", ""},
		{"sluice/forwarding=direct " + router + "=tunnel", "sluice/forwarding", ""},
		{"sluice/forwarding=masquerade " + antrea + "=dsr", "", `"dsr" is ignored: the annotation sluice/forwarding says otherwise`},
		{"sluice/forwarding=dsr", "", `"dsr" is no way to forward packets (use direct or masquerade)`},
		{router + "=gre", "", "use tunnel, or sluice/forwarding instead"},
	} {
		svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: annotated(tt.annotations)}}
		svc.Spec.ClusterIP = "10.96.0.1"
		got, ok := Proxy{}.Service(svc)
		if !ok || got.Direct != tt.want {
			t.Errorf("%q: direct return is asked for by %q, want %q", tt.annotations, got.Direct, tt.want)
		}
		checkProblem(t, got.Problems, tt.problem)
	}
}

// TestOtherNodes: their addresses matter only to a proxy that asks for them, and what else changes does not.
func TestOtherNodes(t *testing.T) {
	node := func(name, ip string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: ip}, {Type: v1.NodeHostName, Address: name}}}}
	}
	all := Proxy{NodeName: "here", AllNodes: true}
	if events := all.Events(node("here", "192.0.2.1")); len(events) != 1 || events[0].(model.SetNode).Name != "here" {
		t.Errorf("this node is %v", events)
	}
	events := all.Events(node("far", "192.0.2.2"))
	peer, ok := events[0].(model.SetPeer)
	if !ok || peer.Name != "far" || len(peer.IPs) != 1 {
		t.Fatalf("another node is %v", events)
	}
	beating := node("far", "192.0.2.2")
	beating.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, LastHeartbeatTime: metav1.Now()}}
	if _, changes := Diff(events, all.Events(beating)); len(changes) > 0 {
		t.Errorf("a heartbeat is %v", changes)
	}
	if _, changes := Diff(events, all.Events(node("far", "192.0.2.3"))); len(changes) != 1 {
		t.Errorf("another address is %v", changes)
	}
	if _, changes := Diff(events, nil); len(changes) != 1 || changes[0] != (model.DeletePeer{Name: "far"}) {
		t.Errorf("that it is gone is %v", changes)
	}
	for proxy, want := range map[Proxy]int{all: 1, {NodeName: "here"}: 0} {
		if events, problems := Kinds["Node"].Convert(node("far", "192.0.2.2"), proxy); len(events) != want || len(problems) > 0 {
			t.Errorf("of a manifest, %+v takes %v, %v", proxy, events, problems)
		}
	}
}
