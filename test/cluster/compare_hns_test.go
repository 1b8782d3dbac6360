package cluster

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/testkit"
	"sluice/test/cluster/apiserver"
	"sluice/test/fakeapi"
	"sluice/test/windows/wine"
)

var windowsServices = flag.Int("windows-services", 0, "Services to measure calls and seconds with")

// Whatever objects there are, HNS has the same load balancers as with upstream's kube-proxy.exe, after a start
// and after random changes, except for the documented differences.
func TestSameLoadBalancersAsUpstream(t *testing.T) {
	lab := newWindowsLab(t)
	for name, part := range map[string]func(*testing.T){
		"deliberate differences": lab.testDifferences, "speed": lab.testSpeed, "random clusters": lab.testRandomClusters,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t)
		})
	}
}

// windowsLab is a Windows machine with both programs.
type windowsLab struct {
	machine      *wine.Machine
	theirs, ours string
}

func newWindowsLab(t *testing.T) *windowsLab {
	testkit.NotShort(t, "it starts wine")
	if os.Getenv(apiserver.KubernetesVariable) != "" {
		t.Skip("no API server takes part: it would be the same again")
	}
	theirs, err := apiserver.BuildForWindows(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	m := wine.New(t)
	return &windowsLab{m, theirs, m.KubeProxy()}
}

// windowsContest is two nodes with the same objects, one with upstream's kube-proxy and one with ours.
type windowsContest struct {
	*testing.T
	lab                  *windowsLab
	networkType, release string
	flags                []string
	server               *fakeapi.Server
	address, healthPort  string
	step                 int
	theirs, ours         *wine.Proxy
	metrics              map[*wine.Proxy]string // addresses
	last                 map[*fakehns.HNS]*seen
}

// windowsPods are the pods of the node that have endpoints.
var windowsPods = []string{"10.244.1.1", "10.244.1.2", "10.244.1.3", "fd00:10:244:1::1", "fd00:10:244:1::2", "fd00:10:244:1::3"}

// contest returns one without objects, whose proxies have not been started.
func (l *windowsLab) contest(t *testing.T, networkType, release string, flags []string) *windowsContest {
	t.Helper()
	c := &windowsContest{T: t, lab: l, networkType: networkType, release: release, server: fakeapi.New(), metrics: map[*wine.Proxy]string{}, last: map[*fakehns.HNS]*seen{}}
	listener := l.machine.For(t).Listen("127.0.0.1:0")
	c.address = listener.Addr().String()
	c.server.Serve(listener)
	t.Cleanup(func() {
		if err := c.server.Close(); err != nil {
			t.Error(err)
		}
	})
	_, c.healthPort, _ = net.SplitHostPort(l.machine.For(t).FreeAddress())
	c.flags = append([]string{"--master=http://" + c.address, "--hostname-override=node1", "--network-name=" + wine.Network,
		"--iptables-min-sync-period=100ms", "-v=1"}, flags...)
	if networkType == hns.Overlay {
		c.flags = append(c.flags, "--source-vip=10.244.1.250")
	}
	return c
}

func (c *windowsContest) start() {
	c.Helper()
	c.startTheirs()
	c.ours = c.startOurs()
}

func (c *windowsContest) startOurs() *wine.Proxy {
	c.Helper()
	return c.run(c.lab.ours, "--healthz-bind-address=127.0.0.2:"+c.healthPort, "--control-socket=", "--page=false")
}

// startTheirs starts upstream's on a node on which nothing has run.
func (c *windowsContest) startTheirs() {
	c.Helper()
	if c.theirs != nil {
		c.theirs.Kill()
	}
	c.theirs = c.run(c.lab.theirs, "--healthz-bind-address=127.0.0.1:"+c.healthPort, "--proxy-mode=kernelspace")
}

// run starts a proxy on a node of its own. The port of its health answers is in load balancers: both have the same.
func (c *windowsContest) run(exe string, flags ...string) *wine.Proxy {
	c.Helper()
	m := c.lab.machine.For(c.T)
	var pods []netip.Addr
	for _, ip := range windowsPods {
		pods = append(pods, netip.MustParseAddr(ip))
	}
	n := m.NewNode(c.networkType, c.release, pods...)
	metrics := m.FreeAddress()
	p := n.Run(exe, slices.Concat(c.flags, []string{"--metrics-bind-address=" + metrics}, flags)...)
	c.metrics[p] = metrics
	return p
}

// metricNames returns those of the metrics about the proxy itself that it has.
func (c *windowsContest) metricNames(p *wine.Proxy) (names []string) {
	_, text := p.Get(c.metrics[p], "/metrics")
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE kubeproxy_"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// set makes the API server serve objects. The marker of a new step comes after all of them.
func (c *windowsContest) set(objects []fakeapi.Object) {
	c.Helper()
	if err := c.server.Set(append(slices.Clone(objects), c.marker()...)); err != nil {
		c.Fatal(err)
	}
	c.tick()
}

// tick begins a step in which only the marker changes: upstream's does in its next pass what it could not do in
// the last one.
func (c *windowsContest) tick() {
	c.Helper()
	c.step++
	if err := c.server.Put(c.marker()...); err != nil {
		c.Fatal(err)
	}
}

// marker are the objects that show which step a proxy has reached.
func (c *windowsContest) marker() (objects []fakeapi.Object) {
	service, endpoints := markerOf(c.step)
	objects = append(objects, speller{plain: true}.service(service))
	for _, s := range endpoints {
		objects = append(objects, speller{plain: true}.slice(s))
	}
	return objects
}

// seen is what HNS had when it was looked at, after so many calls.
type seen struct {
	calls     int
	balancers []string // but those of the marker
	current   bool     // those of the marker are of the current step, and so of objects that are as new
	step      int
}

// look returns what a proxy has programmed. To look again while nothing is called takes no time.
func (c *windowsContest) look(p *wine.Proxy) *seen {
	if last := c.last[p.HNS]; last != nil && last.step == c.step && last.calls == p.HNS.Total() {
		return last
	}
	state := p.HNS.State()
	now := &seen{calls: state.Total(), step: c.step}
	markers := 0
	for _, line := range state.Balancers() {
		if !slices.ContainsFunc(markerIPs, func(ip netip.Addr) bool { return strings.Contains(line, strconv.Quote(ip.String())) }) {
			now.balancers = append(now.balancers, line)
		} else if strings.Contains(line, fmt.Sprintf(`"ExternalPort":%d,"InternalPort":%d,`, markerPort(c.step), echoPort(c.step))) {
			markers++
		}
	}
	families := 2
	if c.networkType == hns.Overlay {
		families = 1
	}
	now.current = markers == families
	c.last[p.HNS] = now
	return now
}

// same returns what differs now, or nil.
func (c *windowsContest) same() error {
	theirs, ours := c.look(c.theirs), c.look(c.ours)
	switch {
	case !theirs.current || !ours.current:
		return fmt.Errorf("upstream's has programmed step %d: %t, ours: %t", c.step, theirs.current, ours.current)
	case !slices.Equal(theirs.balancers, ours.balancers):
		return fmt.Errorf("(-upstream +ours)\n%s", cmp.Diff(theirs.balancers, ours.balancers))
	}
	return nil
}

// await waits until both proxies have programmed the current step, and have the same.
func (c *windowsContest) await() {
	c.Helper()
	testkit.Eventually(c, c.same)
}

// settle waits until both proxies have programmed the current step and call nothing any more, and returns what
// differs then. Upstream's goes through Services in any order: what is the same in between need not stay so.
func (c *windowsContest) settle() (difference error) {
	c.Helper()
	calls, since, began := 0, time.Now(), time.Now()
	if err := testkit.Poll(testkit.Timeout, func() error {
		if total := c.theirs.HNS.Total() + c.ours.HNS.Total(); total != calls {
			calls, since = total, time.Now()
		}
		if time.Since(since) < testkit.Scaled(100*time.Millisecond) {
			return errors.New("they call")
		}
		difference = c.same()
		if c.look(c.theirs).current && c.look(c.ours).current {
			return nil
		}
		if time.Since(began) > testkit.Scaled(3*time.Second) { // a pass of upstream's has failed, and the next is far
			began = time.Now()
			c.tick()
		}
		return difference
	}); err != nil && !c.look(c.ours).current {
		c.Fatal(difference)
	}
	return difference // also if upstream's has given up until it starts anew
}

// compare compares the load balancers. Some of what upstream's does with a change waits for its next pass; and what
// it holds after changes may not be what it makes of the same objects at its start: then this counts, and compare
// says so.
func (c *windowsContest) compare() (byHistory bool) {
	c.Helper()
	difference := c.settle()
	for passes := 0; difference != nil && c.look(c.theirs).current && passes < 2; passes++ {
		c.tick()
		difference = c.settle()
	}
	if difference == nil {
		return false
	}
	c.startTheirs()
	if again := testkit.Poll(testkit.Timeout, c.same); again != nil {
		c.Fatalf("step %d: %v\nbefore upstream's was started anew:\n%v", c.step, again, difference)
	}
	return true
}

// windowsNetworks are the networks that random clusters are compared in: of each type, with a HNS that can
// change load balancers and one that cannot.
var windowsNetworks = []struct {
	networkType, release string
	flags                []string
}{
	{hns.L2Bridge, "15.5", nil},
	{hns.L2Tunnel, "14.0", []string{"--enable-dsr"}},
	{hns.Overlay, "15.5", []string{"--enable-dsr"}},
	{hns.L2Bridge, "14.0", []string{"--enable-dsr"}},
	{hns.L2Tunnel, "15.5", nil},
	{hns.Overlay, "14.0", nil},
}

// testRandomClusters compares random clusters, one after the other on the same nodes, and random changes of
// each.
func (l *windowsLab) testRandomClusters(t *testing.T) {
	t.Logf("random clusters from %d on (repeat with -seed)", *seed)
	clusters := uint64(testkit.Extent(0, 30, 120))
	for i, n := range windowsNetworks {
		t.Run(n.networkType+" "+n.release, func(t *testing.T) {
			t.Parallel()
			r := &randomWindows{windowsContest: l.contest(t, n.networkType, n.release, n.flags)}
			r.set([]fakeapi.Object{windowsNode()})
			r.start()
			r.compare()
			for cluster := *seed; cluster < *seed+clusters; cluster++ {
				if cluster%uint64(len(windowsNetworks)) == uint64(i) {
					r.follow(cluster)
				}
			}
			t.Logf("%d states with %d load balancers are the same; in %d of them upstream's were others until it started anew",
				r.states, r.balanced, r.byHistory)
			t.Logf("the other changes took %d calls, and with upstream's %d", r.calls, r.theirCalls)
			if r.balanced < 3*r.states {
				t.Error("there were too few load balancers")
			}
		})
	}
}

// randomWindows is a contest about random clusters.
type randomWindows struct {
	*windowsContest
	rng      *rand.Rand
	odd      speller
	topology randomworld.Topology
	world    oracle.World

	states, balanced, byHistory int
	calls, theirCalls           int // in the states that are not byHistory
}

// follow compares a random cluster, and what becomes of it.
func (r *randomWindows) follow(seed uint64) {
	r.Helper()
	defer func() {
		if r.Failed() {
			r.Fatalf("repeat with -run TestSameLoadBalancersAsUpstream/random -args -seed %d", seed)
		}
	}()
	r.rng = rand.New(rand.NewPCG(seed, 34))
	r.odd = speller{seed: seed, leftOut: strings.Split(*leftOut, ",")}
	r.topology = windowsTopology()
	r.world = randomworld.Random(r.rng, r.topology)
	for range testkit.Extent(0, 2, 8) {
		before, theirsBefore := r.ours.HNS.Total(), r.theirs.HNS.Total()
		r.publish()
		if r.compare() {
			r.byHistory++
		} else {
			r.calls += r.ours.HNS.Total() - before
			r.theirCalls += r.theirs.HNS.Total() - theirsBefore
		}
		r.states++
		r.balanced += len(r.ours.HNS.State().LoadBalancers)
		r.world = after(r.world, randomworld.RandomEvents(r.rng, r.world, r.topology))
	}
	r.sound()
}

// sound fails the test if ours did what no client should do, or leaves a handle open. A comparison with all of HNS
// may be under way.
func (c *windowsContest) sound() {
	c.Helper()
	if s := c.ours.HNS.State(); len(s.Violations) > 0 {
		c.Errorf("violations: %q", s.Violations)
	}
	testkit.Eventually(c, func() error {
		if n := c.ours.HNS.State().OpenHandles; n > 0 {
			return fmt.Errorf("%d handles are open", n)
		}
		return nil
	})
}

func windowsTopology() randomworld.Topology {
	t := randomworld.Example()
	t.Annotations, t.LocalRoutes = false, nil
	t.NodeName, t.NodeIPs = "node1", nil
	for _, ip := range wine.NodeIPs {
		t.NodeIPs = append(t.NodeIPs, netip.MustParseAddr(ip))
	}
	t.LocalPods, t.RemotePods = nil, nil
	for _, ip := range windowsPods {
		t.LocalPods = append(t.LocalPods, randomworld.Pod{Addr: netip.MustParseAddr(ip), Node: "node1", Interface: "eth0"})
		t.RemotePods = append(t.RemotePods, randomworld.Pod{Addr: netip.MustParseAddr(strings.Replace(strings.Replace(ip, "10.244.1.", "10.244.2.", 1), "244:1::", "244:2::", 1)), Node: "node2"})
	}
	return t
}

// publish makes the API server serve the world. Some Services have the annotations that mean something on
// Windows.
func (r *randomWindows) publish() {
	r.Helper()
	w := withoutDeliberate(definite(r.world))
	node := *w.Node
	node.IPs = r.topology.NodeIPs
	w.Node = &node
	objects := r.odd.objects(w)
	for _, o := range objects {
		if s, ok := o.(*corev1.Service); ok {
			annotate(s, "preserve-destination", "true", r.odd.oneIn(4, "preserve-destination", s.Name))
			annotate(s, "winProxyOptimization", "disabled", r.odd.oneIn(6, "win-proxy-optimization", s.Name))
		}
	}
	r.set(objects)
}

func annotate(s *corev1.Service, name, value string, really bool) {
	if !really {
		return
	}
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[name] = value
}

// withoutDeliberate returns a world in which the documented differences make none: windowsDifferences has them.
func withoutDeliberate(w oracle.World) oracle.World {
	balanced := map[model.Name]bool{}
	for _, s := range w.Services {
		balanced[s.Name] = len(s.LoadBalancerIPs) > 0
	}
	type endpointOf struct {
		service model.Name
		addr    netip.Addr
	}
	ready := map[endpointOf]bool{}
	for _, s := range w.Slices {
		for _, e := range s.Endpoints {
			if e.Conditions == model.Ready|model.Serving {
				ready[endpointOf{s.ServiceName(), e.Addr}] = true
			}
		}
	}
	type port struct {
		service model.Name
		name    string
	}
	numbers := map[port]uint16{}
	for i, old := range w.Slices {
		s := *old
		s.Ports = slices.Clone(old.Ports)
		for j, p := range s.Ports { // target-ports
			at := port{s.ServiceName(), p.Name}
			if numbers[at] == 0 {
				numbers[at] = p.Port
			}
			s.Ports[j].Port = numbers[at]
		}
		s.Endpoints = nil
		for _, e := range old.Endpoints {
			e.Hints = nil // topology
			if e.Conditions != model.Ready|model.Serving {
				if ready[endpointOf{s.ServiceName(), e.Addr}] {
					continue // it would not be definite any more
				}
				if balanced[s.ServiceName()] {
					continue // unready
				}
				e.Conditions = 0 // terminating
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		w.Slices[i] = &s
	}
	return w
}
