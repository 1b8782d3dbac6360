package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/windows/wine"
)

// windowsCase is a cluster for which HNS has other load balancers with upstream's kube-proxy, on purpose.
type windowsCase struct {
	name         string // in docs/windows.md
	overlay      bool
	before       func(*wine.Node) (undo func()) // what another program does
	objects      []fakeapi.Object
	theirs, ours []string
}

// The endpoints of cases.
var (
	local, remote1, remote2 = endpoint("10.244.1.1"), endpoint("10.244.2.1"), endpoint("10.244.2.2")
	public                  = endpoint("203.0.113.77")
)

var windowsDifferences = []windowsCase{
	{name: "terminating",
		objects: []fakeapi.Object{windowsService(), windowsSlice("web", 8080, terminating(remote1))},
		ours:    []string{"10.96.0.10 protocol 6 port 80 to 10.244.2.1 port 8080 flags 0 mapping 0"}},
	{name: "terminating, with a load balancer",
		objects: []fakeapi.Object{windowsService(balanced), windowsSlice("web", 8080, terminating(local))},
		theirs: []string{
			"10.96.0.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 0 mapping 0",
			"203.0.113.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 1 mapping 16",
		},
		ours: []string{
			"* protocol 6 port 30010 to 10.244.1.1 port 8080 flags 1 mapping 18",
			"10.96.0.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 0 mapping 0",
			"203.0.113.10 protocol 6 port 32010 to 10.244.1.1 port 32010 flags 0 mapping 0",
			"203.0.113.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 1 mapping 16",
		}},
	{name: "unready, with a load balancer",
		objects: []fakeapi.Object{windowsService(balanced), windowsSlice("web", 8080, unready(local))},
		theirs: []string{
			"10.96.0.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 0 mapping 0",
			"203.0.113.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 1 mapping 16",
		},
		ours: []string{"203.0.113.10 protocol 6 port 32010 to 10.244.1.1 port 32010 flags 0 mapping 0"}},
	{name: "no endpoint, with a load balancer",
		objects: []fakeapi.Object{windowsService(balanced)},
		ours:    []string{"203.0.113.10 protocol 6 port 32010 to 10.244.1.1 port 32010 flags 0 mapping 0"}},
	{name: "topology",
		objects: []fakeapi.Object{windowsService(), windowsSlice("web", 8080, inZone(local, "zone-1"), inZone(remote1, "zone-2"))},
		theirs:  []string{"10.96.0.10 protocol 6 port 80 to 10.244.1.1 10.244.2.1 port 8080 flags 0 mapping 0"},
		ours:    []string{"10.96.0.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 0 mapping 0"}},
	{name: "target ports",
		objects: []fakeapi.Object{windowsService(), windowsSlice("web", 8080, local, remote1), windowsSlice("web2", 9090, remote2)},
		theirs:  []string{"10.96.0.10 protocol 6 port 80 to 10.244.1.1 10.244.2.1 10.244.2.2 port 9090 flags 0 mapping 0"},
		ours:    []string{"10.96.0.10 protocol 6 port 80 to 10.244.1.1 10.244.2.1 port 8080 flags 0 mapping 0"}},
	{name: "endpoints without a node",
		objects: []fakeapi.Object{windowsService(func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		}),
			windowsSlice("web", 8080, nodeless(local))},
		theirs: []string{"10.96.0.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 0 mapping 0"}},
	{name: "health checks",
		objects: []fakeapi.Object{windowsService(balanced, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }),
			windowsSlice("web", 8080, local)},
		theirs: []string{
			"* protocol 17 port 30010 to 10.244.1.1 port 8080 flags 1 mapping 18",
			"10.96.0.10 protocol 17 port 80 to 10.244.1.1 port 8080 flags 0 mapping 0",
			"203.0.113.10 protocol 17 port 32010 to 10.244.1.1 port 32010 flags 0 mapping 0",
			"203.0.113.10 protocol 17 port 80 to 10.244.1.1 port 8080 flags 1 mapping 16",
		},
		ours: []string{
			"* protocol 17 port 30010 to 10.244.1.1 port 8080 flags 1 mapping 18",
			"10.96.0.10 protocol 17 port 80 to 10.244.1.1 port 8080 flags 0 mapping 0",
			"203.0.113.10 protocol 17 port 80 to 10.244.1.1 port 8080 flags 1 mapping 16",
			"203.0.113.10 protocol 6 port 32010 to 10.244.1.1 port 32010 flags 0 mapping 0",
		}},
	{name: "source addresses", overlay: true,
		objects: []fakeapi.Object{windowsService(balanced), windowsSlice("web", 8080, local, public)},
		theirs: []string{
			"* protocol 6 port 30010 to 10.244.1.1 port 8080 flags 1 mapping 18 source 192.0.2.10",
			"10.96.0.10 protocol 6 port 80 to 10.244.1.1 203.0.113.77 port 8080 flags 0 mapping 0 source 192.0.2.10",
			"203.0.113.10 protocol 6 port 32010 to 10.244.1.1 port 32010 flags 0 mapping 0 source 192.0.2.10",
			"203.0.113.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 1 mapping 16 source 192.0.2.10",
		},
		ours: []string{
			"* protocol 6 port 30010 to 10.244.1.1 port 8080 flags 1 mapping 18 source 10.244.1.250",
			"10.96.0.10 protocol 6 port 80 to 10.244.1.1 203.0.113.77 port 8080 flags 0 mapping 0 source 192.0.2.10",
			"203.0.113.10 protocol 6 port 32010 to 10.244.1.1 port 32010 flags 0 mapping 0 source 10.244.1.250",
			"203.0.113.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 1 mapping 16 source 10.244.1.250",
		}},
	{name: "other programs' load balancers", overlay: true,
		before: func(n *wine.Node) func() {
			const id = "A0000000-0000-4000-8000-000000000001"
			n.Create(hns.LoadBalancers, 0, fakehns.Document{"ID": id, "FrontendVIPs": []string{"10.96.0.10"},
				"HostComputeEndpoints": []any{n.HNS.State().Endpoints[0]["ID"]},
				"PortMappings":         []any{fakehns.Document{"Protocol": 6, "InternalPort": 8080, "ExternalPort": 80}}})
			return func() { n.HNS.Do(fakehns.Call{Function: "HcnDeleteLoadBalancer", ID: id}) }
		},
		objects: []fakeapi.Object{windowsService(), windowsSlice("web", 8080, remote1)},
		theirs:  []string{"10.96.0.10 protocol 6 port 80 to 10.244.2.1 port 8080 flags 0 mapping 0 source 10.244.1.250"},
		ours:    []string{"10.96.0.10 protocol 6 port 80 to 10.244.1.1 port 8080 flags 0 mapping 0"}},
}

// windowsService returns a Service of one port.
func windowsService(edits ...func(*corev1.Service)) fakeapi.Object {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}}}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// balanced makes a Service one with a load balancer and policy Local.
func balanced(s *corev1.Service) {
	s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 32010
	s.Spec.Ports[0].NodePort = 30010
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
}

func windowsSlice(name string, port int32, endpoints ...discoveryv1.Endpoint) fakeapi.Object {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("http"), Protocol: ptr.To(protocol), Port: ptr.To(port)})
	}
	return s
}

func endpoint(ip string) discoveryv1.Endpoint {
	node := "node2"
	if strings.HasPrefix(ip, "10.244.1.") {
		node = "node1"
	}
	return discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &node}
}

func terminating(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	return e
}

func unready(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false)}
	return e
}

func inZone(e discoveryv1.Endpoint, zone string) discoveryv1.Endpoint {
	e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	return e
}

func nodeless(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.NodeName = nil
	return e
}

// windowsNode is the Node that proxies run on.
func windowsNode() fakeapi.Object {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{corev1.LabelTopologyZone: "zone-1"}}}
	for _, ip := range wine.NodeIPs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return n
}

// testDifferences shows that what differs on purpose does, as it is documented, and that common objects, and
// changes of them, lead to the same.
func (l *windowsLab) testDifferences(t *testing.T) {
	page, err := os.ReadFile("../../docs/windows.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, networkType := range []string{hns.L2Bridge, hns.Overlay} {
		t.Run(networkType, func(t *testing.T) {
			t.Parallel()
			c := l.contest(t, networkType, "15.5", []string{"--forward-healthcheck-vip", "--root-hnsendpoint-name=pod1"})
			c.set([]fakeapi.Object{windowsNode()})
			c.start()
			c.compare()
			for _, d := range windowsDifferences {
				if d.overlay == (networkType == hns.Overlay) {
					c.differs(d, string(page))
				}
			}
			if networkType == hns.L2Bridge {
				c.sameInSteps()
				c.sameFailures()
			}
			c.sameMetrics()
		})
	}
}

// differs shows that what differs on purpose does, as a page says.
func (c *windowsContest) differs(d windowsCase, page string) {
	c.Helper()
	if !strings.Contains(page, "\n| "+d.name+" |") {
		c.Errorf("docs/windows.md has no row %q", d.name)
	}
	var undo []func()
	for _, p := range []*wine.Proxy{c.theirs, c.ours} {
		if d.before != nil {
			undo = append(undo, d.before(p.Node))
		}
	}
	c.set(append(slices.Clone(d.objects), windowsNode()))
	testkit.Eventually(c, func() error {
		_ = c.settle() // it differs
		for p, want := range map[*wine.Proxy][]string{c.theirs: d.theirs, c.ours: d.ours} {
			if diff := cmp.Diff(want, c.described(p)); diff != "" {
				c.tick()
				return fmt.Errorf("%s: %s (-want +got)\n%s", d.name, p.Label, diff)
			}
		}
		return nil
	})
	for _, f := range undo {
		f()
	}
	c.set([]fakeapi.Object{windowsNode()})
	c.compare()
}

// sameMetrics shows that ours has all metrics that upstream's has.
func (c *windowsContest) sameMetrics() {
	c.Helper()
	ours, theirs := c.metricNames(c.ours), c.metricNames(c.theirs)
	c.Logf("upstream's metrics: %q", theirs)
	for _, name := range theirs {
		if !slices.Contains(ours, name) {
			c.Errorf("there is no metric %s, which upstream has: %q", name, ours)
		}
	}
	if len(theirs) == 0 {
		c.Error("upstream has no metrics")
	}
}

// described are the load balancers of a node but those of the marker, in few words. They have no affinity.
func (c *windowsContest) described(p *wine.Proxy) (lines []string) {
	for line := range strings.Lines(p.HNS.State().Summary()) {
		line, is := strings.CutPrefix(strings.TrimSpace(line), "balancer ")
		isMarker := slices.ContainsFunc(markerIPs, func(ip netip.Addr) bool { return strings.HasPrefix(line, ip.String()+" ") })
		if is && !isMarker {
			lines = append(lines, strings.Replace(strings.TrimSuffix(line, " source -"), " distribution 0", "", 1))
		}
	}
	return lines
}

// sameInSteps changes one Service again and again.
func (c *windowsContest) sameInSteps() {
	c.Helper()
	service := windowsService().(*corev1.Service)
	endpoints := []discoveryv1.Endpoint{local, remote1}
	spec := &service.Spec
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"ClusterIP", func() {}},
		{"an endpoint more", func() { endpoints = append(endpoints, remote2) }},
		{"an endpoint that is not ready", func() { endpoints[1] = unready(remote1) }},
		{"node port", func() { spec.Type, spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30010 }},
		{"external IP", func() { spec.ExternalIPs = []string{"198.51.100.10"} }},
		{"affinity", func() {
			spec.SessionAffinity = corev1.ServiceAffinityClientIP
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10800)}}
		}},
		{"load balancer IP", func() { balanced(service) }},
		{"preserved destination", func() { service.Annotations = map[string]string{"preserve-destination": "true"} }},
		{"policy Cluster", func() { spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster }},
		{"internal policy Local", func() { spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal) }},
		{"a port more", func() {
			spec.Ports = append(spec.Ports, corev1.ServicePort{Name: "http2", Protocol: corev1.ProtocolUDP, Port: 81, NodePort: 30011})
		}},
		{"other ports", func() { spec.Ports[0].Port, spec.Ports[0].NodePort = 8000, 30012 }},
		{"no endpoint on the node", func() { endpoints = endpoints[1:] }},
		{"endpoints again", func() { endpoints = []discoveryv1.Endpoint{local, remote2} }},
		{"no load balancer", func() {
			spec.Type, spec.ExternalTrafficPolicy, spec.HealthCheckNodePort = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyCluster, 0
			service.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		}},
		{"no endpoint", func() { endpoints = nil }},
		{"an endpoint", func() { endpoints = []discoveryv1.Endpoint{local} }},
	} {
		step.change()
		c.set([]fakeapi.Object{windowsNode(), service.DeepCopy(), windowsSlice("web", 8080, endpoints...)})
		if byHistory := c.compare(); byHistory {
			c.Logf("%s: upstream's has other load balancers after this change than after a start", step.name)
		}
		if len(c.look(c.ours).balancers) == 0 && step.name != "no endpoint" {
			c.Errorf("%s: there is no load balancer", step.name)
		}
	}
}

// sameFailures shows that what HNS refuses is counted by upstream's names and labels, and that all is the same
// when it refuses nothing any more.
func (c *windowsContest) sameFailures() {
	c.Helper()
	cluster := func(endpoints ...discoveryv1.Endpoint) []fakeapi.Object {
		return []fakeapi.Object{windowsNode(), windowsService(), windowsSlice("web", 8080, endpoints...)}
	}
	refuse := func(function string) {
		for _, p := range []*wine.Proxy{c.theirs, c.ours} {
			p.HNS.SetFault(func(call fakehns.Call) hns.Code {
				if call.Function == function {
					return fakehns.InvalidIP
				}
				return 0
			})
		}
	}
	c.set(cluster(local, remote1))
	c.compare()
	for _, step := range []struct {
		what, function string
		objects        []fakeapi.Object
	}{
		{"update", "HcnModifyLoadBalancer", cluster(local, remote2)},
		{"delete", "HcnDeleteLoadBalancer", cluster()},
		{"create", "HcnCreateLoadBalancer", cluster(local, remote1)},
	} {
		refuse(step.function)
		c.set(step.objects)
		testkit.Eventually(c, func() error {
			theirs, ours := c.failures(c.theirs, step.what), c.failures(c.ours, step.what)
			if diff := cmp.Diff(theirs, ours); diff != "" || len(theirs) == 0 {
				time.Sleep(100 * time.Millisecond) // to answer takes them time
				return fmt.Errorf("%s (-upstream +ours)\n%s", step.what, diff)
			}
			return nil
		})
		refuse("")
		if c.compare() {
			c.Logf("%s: upstream's did not try again until it started anew", step.what)
		}
	}
	c.sound()
}

// failures are the metrics of a kind of failure, with their labels. What follows from one may be counted, too:
// what is not deleted is in the way of its successor.
func (c *windowsContest) failures(p *wine.Proxy, what string) (found []string) {
	_, text := p.Get(c.metrics[p], "/metrics")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "kubeproxy_sync_proxy_rules_winkernel_lb_"+what+"_failures_total{") && strings.Contains(line, `error="invalid_ip"`) {
			found = append(found, line[:strings.LastIndex(line, " ")])
		}
	}
	slices.Sort(found)
	return found
}

// testSpeed measures calls and seconds of both, one after the other.
func (l *windowsLab) testSpeed(t *testing.T) {
	services := testkit.ExtentOr(*windowsServices, 0, 50, 1000)
	objects := []fakeapi.Object{windowsNode()}
	for i := range services {
		name := fmt.Sprint("web", i)
		s := windowsService(func(s *corev1.Service) {
			s.Name = name
			s.Spec.ClusterIP = fmt.Sprintf("10.97.%d.%d", i/250, i%250+1)
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		})
		var endpoints []discoveryv1.Endpoint
		for e := range 5 {
			endpoints = append(endpoints, endpoint(fmt.Sprintf("10.%d.%d.%d", 20+e, i/250, i%250+1)))
		}
		slice := windowsSlice(name, 8080, endpoints...).(*discoveryv1.EndpointSlice)
		slice.Labels[discoveryv1.LabelServiceName] = name
		objects = append(objects, s, slice)
	}
	changed := objects[2*(services/2)].(*discoveryv1.EndpointSlice).DeepCopy()
	changed.Endpoints[4].Addresses[0] = "10.99.0.1"

	c := l.contest(t, hns.L2Bridge, "15.5", nil)
	calls := map[bool]int{}
	for _, own := range []bool{false, true} {
		c.set(slices.Clone(objects))
		start, p := time.Now(), (*wine.Proxy)(nil)
		if own {
			c.theirs.Kill()
			p = c.startOurs()
		} else {
			c.startTheirs()
			p = c.theirs
		}
		// reaches waits until all is programmed, and nothing is called any more. It returns how long the first took.
		reaches := func(address string) (took time.Duration) {
			t.Helper()
			calls, since := 0, start
			if err := testkit.Poll(time.Duration(1+services/50)*testkit.Timeout, func() error {
				if now := p.HNS.Total(); now != calls {
					calls, since = now, time.Now()
				}
				if time.Since(since) < testkit.Scaled(200*time.Millisecond) {
					return errors.New("it calls")
				}
				s := p.HNS.State()
				// Balancers of both families are those of the marker.
				if n := len(s.LoadBalancers); n != services+2 || s.OpenHandles > 0 || !strings.Contains(s.Summary(), address) {
					since = time.Now()
					return fmt.Errorf("%s: HNS has %d load balancers of %d, and %d open handles", p.Label, n, services+2, s.OpenHandles)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return since.Sub(start)
		}
		cold := reaches("10.24.0.1 ")
		coldCalls := p.HNS.Total()
		start = time.Now()
		if err := c.server.Put(changed); err != nil {
			t.Fatal(err)
		}
		took := reaches("10.99.0.1 ")
		calls[own] = p.HNS.Total() - coldCalls
		name := map[bool]string{true: "ours", false: "upstream"}[own]
		t.Logf("%s: %d Services of 5 endpoints: cold start %d calls, %.1f s; one endpoint in place of another %d calls, %.2f s",
			name, services, coldCalls, cold.Seconds(), calls[own], took.Seconds())
	}
	if calls[true]*10 > calls[false] {
		t.Errorf("a change takes %d calls, and upstream's %d", calls[true], calls[false])
	}
}
