package cluster

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// stuck is how long a pod may take to become ready before a roll-out counts as stopped. It is
// a multiple of what a pod that can become ready takes.
const stuck = 10 * time.Second

// rollout is a DaemonSet on two nodes.
type rollout struct {
	*deployment // on no node
	nodes       []*deployment
}

// rollOut installs a file on both nodes of the lab.
func (s *site) rollOut(file string) *rollout {
	s.Helper()
	s.dig("node2", s.server.Addr())
	r := &rollout{deployment: s.install(file)}
	for _, node := range []string{"node1", "node2"} {
		own := *s // each has a proxy of its own
		d := &deployment{site: &own, daemonSet: r.daemonSet, image: r.image}
		d.join(node)
		d.admitPod()
		d.initialize()
		d.startContainer()
		r.nodes = append(r.nodes, d)
	}
	return r
}

// upgrade does what helm upgrade does with the objects of a file, and then what the controller
// of the DaemonSet does if its template has changed: it replaces as many pods as may be
// unavailable, and goes on when they are ready. It returns how many pods are new, and whether
// kubectl rollout status would end.
func (r *rollout) upgrade(file string, change func(*appsv1.DaemonSet)) (replaced int, done bool) {
	r.Helper()
	before := r.daemonSet.Spec.Template
	for _, object := range r.objects(file) {
		switch o := object.(type) {
		case *corev1.ConfigMap:
			if _, err := r.client.CoreV1().ConfigMaps(o.Namespace).Update(r.Context(), r.set(o), metav1.UpdateOptions{}); err != nil {
				r.Fatal(err)
			}
		case *appsv1.DaemonSet:
			o = r.setAddress(o)
			change(o)
			var err error
			if r.daemonSet, err = r.client.AppsV1().DaemonSets(o.Namespace).Update(r.Context(), o, metav1.UpdateOptions{}); err != nil {
				r.Fatal(err)
			}
		}
	}
	if equality.Semantic.DeepEqual(before, r.daemonSet.Spec.Template) {
		return 0, true
	}
	unavailable, err := intstr.GetScaledValueFromIntOrPercent(r.daemonSet.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, len(r.nodes), true)
	if err != nil || unavailable != 1 {
		r.Fatalf("%d pods may be unavailable, %v, want 1 of few", unavailable, err)
	}
	for i, d := range r.nodes {
		d.endContainer("TERM", 0)
		if err := r.client.CoreV1().Pods(d.object.Namespace).Delete(r.Context(), d.object.Name, metav1.DeleteOptions{}); err != nil {
			r.Fatal(err)
		}
		d.daemonSet = r.daemonSet
		d.admitPod()
		d.initialize()
		d.runContainer(&d.object.Spec.Containers[0])
		if !d.becomesReady() {
			return i + 1, false
		}
	}
	return len(r.nodes), true
}

// becomesReady probes the pod as a kubelet does, for as long as a roll-out may take.
func (d *deployment) becomesReady() bool {
	ctx, cancel := testkit.WithTimeout(d.Context(), stuck)
	defer cancel()
	for {
		if d.probed(d.object.Spec.Containers[0].ReadinessProbe) == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// mode returns the one that is in force on the node.
func (d *deployment) mode() string {
	d.Helper()
	to := lab.Flow{From: d.node, Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}
	page, err := d.lab.Get(to, "/proxyMode")
	if err != nil {
		d.Fatal(err)
	}
	_, mode, _ := strings.Cut(page.Text, "\r\n\r\n")
	return mode
}

// A version, or a setting, with which the proxy cannot reach its API server comes to one node
// only, and that node serves as before.
func TestRolloutStopsWhereTheProxyCannotServe(t *testing.T) {
	s := startWithoutProxy(t)
	r := s.rollOut(byHelm)
	web := s.create("web", "pod1")
	s.expect("before", answered(clusterFlows(web), "pod1"))
	second := r.nodes[1].object.Name
	replaced, done := r.upgrade(byHelm, func(o *appsv1.DaemonSet) {
		for i, e := range o.Spec.Template.Spec.Containers[0].Env {
			if e.Name == "KUBERNETES_SERVICE_PORT" {
				o.Spec.Template.Spec.Containers[0].Env[i].Value = "1"
			}
		}
	})
	if replaced != 1 || done || r.nodes[1].object.Name != second {
		t.Errorf("the roll-out replaced %d pods, and ended: %t", replaced, done)
	}
	first := r.nodes[0]
	containers := first.object.Spec.Containers
	if err := first.probed(containers[0].LivenessProbe); err != nil {
		t.Errorf("the kubelet would restart it: %v", err)
	}
	if err := first.probed(containers[0].ReadinessProbe); err == nil || !strings.Contains(err.Error(), "the API server has not been reachable for ") {
		t.Errorf("the reason is not given: %v", err)
	}
	s.expect("while the roll-out is stopped", answered(clusterFlows(web), "pod1"))
}

// A mode that is changed by Helm is in force on all nodes when kubectl rollout status ends. A
// change that running proxies follow replaces no pod.
func TestModeChangedByHelmIsInForce(t *testing.T) {
	s := startWithoutProxy(t)
	r := s.rollOut(byHelm)
	web := s.create("web", "pod1")
	s.expect("before", answered(clusterFlows(web), "pod1"))
	if replaced, done := r.upgrade(byHelm, func(*appsv1.DaemonSet) {}); replaced != 0 || !done {
		t.Errorf("an upgrade without a change replaced %d pods, and ended: %t", replaced, done)
	}
	if replaced, done := r.upgrade(byHelmInUserspace, func(*appsv1.DaemonSet) {}); replaced != 2 || !done {
		t.Errorf("the roll-out replaced %d pods, and ended: %t", replaced, done)
	}
	for _, d := range r.nodes {
		if got := d.mode(); got != "userspace" {
			t.Errorf("when the roll-out has ended, %s is in mode %q", d.node, got)
		}
	}
	s.expect("in the new mode", answered(clusterFlows(web), "pod1"))
}
