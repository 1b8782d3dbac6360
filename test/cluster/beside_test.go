package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice/internal/observe/nodecondition"
	"sluice/internal/source"
	"sluice/internal/testkit"
	"sluice/test/cluster/apiserver"
	"sluice/test/cluster/process"
	"sluice/test/lab"
)

// trial is the name of the proxy that serves only labelled Services.
const trial = "trial"

// A proxy with a name serves the Services that are labelled with it, beside another proxy that
// serves all others. Either may be killed and started, and Services may change hands: no
// connection is lost, and neither touches the rules of the other.
func TestBesideAnotherProxy(t *testing.T) {
	binaries, err := apiserver.Build(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	own, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, mode string }{
		{"upstream in nftables mode", binaries.KubeProxy, "nftables"},
		{"upstream in iptables mode", binaries.KubeProxy, "iptables"},
		{"Sluice in nftables mode", own, "nftables"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := &neighbours{site: startWithoutProxy(t), path: tt.path, mode: tt.mode, theirs: list[tt.mode]}
			if tt.path == own {
				n.theirs = listTable("sluice")
			}
			n.run()
		})
	}
}

// The pod of the chart with serviceProxyName serves a labelled Service beside upstream's kube-proxy, and leaves the
// node's settings alone.
func TestDeployedBesideUpstream(t *testing.T) {
	binaries, err := apiserver.Build(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	s := startWithoutProxy(t)
	theirs, ours := s.create("theirs", "pod1"), s.create("ours", "pod1")
	s.proxy = s.startMode(binaries.KubeProxy, "nftables")
	s.expect("upstream's", answered(clusterFlows(theirs), "pod1"), answered(clusterFlows(ours), "pod1"))
	stop := s.traffic(append(clusterFlows(theirs), clusterFlows(ours)...))
	d := s.install("../../deploy/kustomize/try/sluice.yaml")
	d.join("node1")
	d.admitPod()
	const timeout = "nf_conntrack_tcp_timeout_established"
	before := d.sysctl(timeout)
	d.startContainer()
	s.label("ours", "sluice")
	s.expectIn(listTable("sluice.sluice"), ours, true)
	s.expectIn(list["nftables"], ours, false)
	d.ask("serves only Services labelled service.kubernetes.io/service-proxy-name=sluice", "kube-proxy", "status")
	d.ask("WORKS", "kube-proxy", "explain", namespace+"/ours")
	s.setPods("ours", "pod1", "pod3")
	s.expectAnswersOf(ours, "pod3")
	if after := d.sysctl(timeout); after != before {
		t.Errorf("%s was %s, and is %s", timeout, before, after)
	}
	d.endContainer("TERM", 0)
	stop()
}

// The Node says when Services work, and pods are kept away until then.
func TestNodeSaysWhenServicesWork(t *testing.T) {
	s := startWithoutProxy(t)
	const taint = "sluice/starting"
	nodes := s.client.CoreV1().Nodes()
	patch := fmt.Appendf(nil, `{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"},{"key":"other","effect":"NoSchedule"}]}}`, taint)
	if _, err := nodes.Patch(t.Context(), "node1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.proxy = s.startProxy("--node-condition", "--startup-taint", taint)
	s.eventually("what the proxy lacks", func(context.Context) error { return s.proxy.Logged("allow the proxy to get and patch nodes") })
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "patch"}}}
	meta := metav1.ObjectMeta{Name: "sluice:node"}
	rbac := s.client.RbacV1()
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:kube-proxy"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the Node", func(ctx context.Context) error {
		node, err := nodes.Get(ctx, "node1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		good := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == nodecondition.Type && c.Status == corev1.ConditionTrue
		})
		if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "other" || !good {
			return fmt.Errorf("it has taints %v and conditions %v", node.Spec.Taints, node.Status.Conditions)
		}
		return nil
	})
}

// neighbours are two proxies on a node.
type neighbours struct {
	*site
	path, mode string // of the other proxy
	theirs     string // the command that lists its rules
	named      *process.Process
}

func listTable(name string) string {
	return fmt.Sprintf("for f in ip ip6; do nft list table $f %s 2>/dev/null || true; done", name)
}

func (n *neighbours) startNamed(flags ...string) {
	n.Helper()
	n.named = n.startProxy(append([]string{"--service-proxy-name", trial, "--control-socket", ""}, flags...)...)
}

func (n *neighbours) run() {
	theirs, ours := n.expose("theirs", 1), n.expose("ours", 2)
	n.label("ours", trial)
	n.proxy = n.startMode(n.path, n.mode)
	n.expect("the other proxy's", answered(allFlows(theirs), "pod1"))
	n.untouched(n.theirs, "the other proxy", func() {
		n.startNamed()
		n.expect("ours", answered(allFlows(ours), "pod1"))
	})
	n.expectHealth(200)
	stop := n.traffic(append(allFlows(theirs), allFlows(ours)...))

	n.untouched(n.theirs, "the other proxy", func() {
		for _, end := range []func() error{n.named.Kill, func() error { return n.named.Stop() }} {
			if err := end(); err != nil {
				n.Fatal(err)
			}
			n.startNamed()
			n.expectHealth(200)
		}
	})
	n.setPods("ours", "pod1", "pod3")
	n.expectAnswersOf(ours, "pod3")
	n.untouched(listTable("sluice."+trial), "this proxy", func() {
		n.replace(n.path, n.mode)
		n.setPods("theirs", "pod1", "pod3")
		n.expectAnswersOf(theirs, "pod3")
	})

	n.label("theirs", trial)
	n.expectIn(listTable("sluice."+trial), theirs, true)
	n.expectIn(n.theirs, theirs, false)
	time.Sleep(testkit.Scaled(time.Second)) // the other proxy forgets the flows of a Service that left it
	sessions := n.datagrams(theirs)
	n.label("theirs", "")
	n.expectIn(n.theirs, theirs, true)
	n.expectIn(listTable("sluice."+trial), theirs, false)
	sessions()
	n.changeMode(ours)
	stop()
	n.cleanUp(ours)
	n.moveAll(theirs, ours)
}

// expose creates a Service that is reached at node ports and external IPs, too.
func (n *neighbours) expose(name string, number int) *corev1.Service {
	n.Helper()
	service := n.create(name, "pod1")
	service.Spec.Type = corev1.ServiceTypeNodePort
	service.Spec.ExternalIPs = []string{fmt.Sprintf("198.18.2.%d", number), fmt.Sprintf("2001:db8:18:2::%d", number)}
	service, err := n.services().Update(n.Context(), service, metav1.UpdateOptions{})
	if err != nil {
		n.Fatal(err)
	}
	return service
}

// allFlows go to all addresses of a Service.
func allFlows(service *corev1.Service) []lab.Flow {
	flows := append(clusterFlows(service), flowsTo("client", servicePort, service.Spec.ExternalIPs...)...)
	for _, port := range service.Spec.Ports {
		for _, ip := range []string{"192.0.2.10", "2001:db8::10"} {
			to := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(port.NodePort))
			flows = append(flows, lab.Flow{From: "client2", Protocol: protocolOf(port.Protocol), To: to})
		}
	}
	return flows
}

// datagrams opens sessions of UDP. Each keeps its endpoint until the returned function ends them.
func (n *neighbours) datagrams(service *corev1.Service) (stop func()) {
	n.Helper()
	stopping := make(chan struct{})
	var asking sync.WaitGroup
	for _, flow := range clusterFlows(service) {
		if flow.Protocol != lab.UDP {
			continue
		}
		for range 4 { // each may be led to the same endpoint by chance
			session, err := n.lab.Open(flow)
			if err != nil {
				n.Fatal(err)
			}
			first, err := session.Ask()
			if err != nil {
				n.Fatal(err)
			}
			asking.Go(func() {
				defer session.Close()
				for pause := time.NewTicker(100 * time.Millisecond); ; <-pause.C {
					if now, err := session.Ask(); err != nil || now.By != first.By {
						n.Errorf("a session of UDP with %s is answered by %q, %v", first.By, now.By, err)
						return
					}
					select {
					case <-stopping:
						return
					default:
					}
				}
			})
		}
	}
	return func() {
		n.Helper()
		time.Sleep(testkit.Scaled(time.Second)) // for the passes over connection tracking
		close(stopping)
		asking.Wait()
	}
}

// changeMode starts the proxy with a name in its other mode. Rules stay until the next process has its own.
func (n *neighbours) changeMode(ours *corev1.Service) {
	n.Helper()
	n.untouched(n.theirs, "the other proxy", func() {
		if err := n.named.Kill(); err != nil {
			n.Fatal(err)
		}
		n.startNamed("--proxy-mode", "userspace")
		n.expectHealth(200)
		n.expect("ours in userspace mode", answered(allFlows(ours), "pod1", "pod3"))
	})
}

// cleanUp removes what the proxy with a name left, and nothing else.
func (n *neighbours) cleanUp(ours *corev1.Service) {
	n.Helper()
	n.untouched(n.theirs, "the other proxy", func() {
		if err := n.named.Kill(); err != nil {
			n.Fatal(err)
		}
		own, err := binary()
		if err != nil {
			n.Fatal(err)
		}
		n.onNode(own + " --service-proxy-name " + trial + " --cleanup-own")
		if tables := n.onNode("nft list tables"); strings.Contains(tables, "."+trial) {
			n.Errorf("left are the tables\n%s", tables)
		}
	})
	n.startNamed()
	n.expectIn(listTable("sluice."+trial), ours, true)
}

// moveAll makes the proxy with a name the only one.
func (n *neighbours) moveAll(theirs, ours *corev1.Service) {
	n.Helper()
	stop := n.traffic(append(clusterFlows(theirs), clusterFlows(ours)...))
	for _, p := range []*process.Process{n.proxy, n.named} {
		if err := p.Kill(); err != nil {
			n.Fatal(err)
		}
	}
	n.startNamed("--all-services")
	n.proxy = n.named
	n.expectIn(listTable("sluice"), ours, true)
	n.expectIn(listTable("sluice"), theirs, true)
	n.expectIn(listTable("sluice."+trial), ours, false)
	if n.path != "" && !strings.Contains(n.theirs, "sluice") {
		n.expectNothingOf(n.mode)
	}
	n.setPods("ours", "pod1", "remote1")
	n.expectAnswersOf(ours, "remote1")
	stop()
}

// label labels a Service with the name of a proxy, or takes the label away.
func (s *site) label(service, proxy string) {
	s.Helper()
	value := "null"
	if proxy != "" {
		value = fmt.Sprintf("%q", proxy)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, source.LabelServiceProxyName, value)
	if _, err := s.services().Patch(s.Context(), service, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// untouched checks that rules are the same after something as before. Their order may differ: upstream
// writes its jumps to Services in another one whenever it writes.
func (n *neighbours) untouched(rules, of string, during func()) {
	n.Helper()
	now := func() string { return strings.Join(slices.Sorted(strings.Lines(ruleLines(n.onNode(rules)))), "") }
	before := now()
	if !strings.Contains(before, "10.96.") {
		n.Fatalf("%s has no rules:\n%s", of, before)
	}
	during()
	if after := now(); after != before {
		n.Errorf("the rules of %s were changed from\n%s\nto\n%s", of, before, after)
	}
}

// expectIn waits until a Service is among rules, or is not.
func (s *site) expectIn(rules string, service *corev1.Service, want bool) {
	s.Helper()
	s.eventually("rules", func(context.Context) error {
		text := s.onNode(rules)
		for _, ip := range service.Spec.ClusterIPs {
			if found := strings.Contains(text, ip+" ") || strings.Contains(text, ip+"/"); found != want {
				return fmt.Errorf("%s, %s is there: %v, in\n%s", service.Name, ip, !want, text)
			}
		}
		return nil
	})
}

// expectHealth waits until the named proxy is ready, at a port of its own.
func (n *neighbours) expectHealth(status int) {
	n.Helper()
	at := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10266"), Timeout: lab.DefaultTimeout}
	n.eventually("health", func(context.Context) error {
		page, err := n.lab.Get(at, "/readyz")
		if err == nil && page.Status != status {
			err = fmt.Errorf("/readyz says\n%s", page.Text)
		}
		return err
	})
}
