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
	t.Run("deliberate differences", lab.testDifferences)
	t.Run("failures", lab.testFailures)
	t.Run("speed", lab.testSpeed)
	t.Run("random clusters", lab.testRandomClusters)
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
}

// windowsPods are the pods of the node that have endpoints.
var windowsPods = []string{"10.244.1.1", "10.244.1.2", "10.244.1.3", "fd00:10:244:1::1", "fd00:10:244:1::2", "fd00:10:244:1::3"}

// contest returns one without objects, whose proxies have not been started.
func (l *windowsLab) contest(t *testing.T, networkType, release string, flags []string) *windowsContest {
	t.Helper()
	c := &windowsContest{T: t, lab: l, networkType: networkType, release: release, server: fakeapi.New(), metrics: map[*wine.Proxy]string{}}
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
		"--iptables-min-sync-period=10ms", "-v=1"}, flags...)
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

// set makes the API server serve objects, with the marker of a new step.
func (c *windowsContest) set(objects []fakeapi.Object) {
	c.Helper()
	c.step++
	service, endpoints := markerOf(c.step)
	objects = append(objects, speller{plain: true}.service(service))
	for _, s := range endpoints {
		objects = append(objects, speller{plain: true}.slice(s))
	}
	if err := c.server.Set(objects); err != nil {
		c.Fatal(err)
	}
}

// balancers returns the load balancers of a node but those of the marker, and whether these are of the current
// step.
func (c *windowsContest) balancers(p *wine.Proxy) (others []string, current bool) {
	found := 0
	for _, line := range p.HNS.State().Balancers() {
		isMarker := false
		for _, ip := range markerIPs {
			if strings.Contains(line, strconv.Quote(ip.String())) {
				isMarker = true
				if strings.Contains(line, fmt.Sprintf(`"ExternalPort":%d,`, markerPort(c.step))) {
					found++
				}
			}
		}
		if !isMarker {
			others = append(others, line)
		}
	}
	families := 2
	if c.networkType == hns.Overlay {
		families = 1
	}
	return others, found == families
}

// same returns what differs now, or nil.
func (c *windowsContest) same() error {
	theirs, _ := c.balancers(c.theirs)
	ours, _ := c.balancers(c.ours)
	if diff := cmp.Diff(theirs, ours); diff != "" {
		return fmt.Errorf("(-upstream +ours)\n%s", diff)
	}
	return nil
}

// await waits until both proxies have programmed the current step, and have the same.
func (c *windowsContest) await() {
	c.Helper()
	testkit.Eventually(c, func() error {
		_, done := c.balancers(c.theirs)
		_, doneToo := c.balancers(c.ours)
		if !done || !doneToo {
			return fmt.Errorf("upstream's has programmed step %d: %t, ours: %t", c.step, done, doneToo)
		}
		return c.same()
	})
}

// settle waits until both proxies have programmed the current step and call nothing any more, and returns what
// differs then. Upstream's goes through Services in any order: what is the same in between need not stay so.
func (c *windowsContest) settle() (difference error) {
	c.Helper()
	calls, since := 0, time.Now()
	if err := testkit.Poll(testkit.Timeout, func() error {
		difference = c.same()
		if total := c.theirs.HNS.State().Total() + c.ours.HNS.State().Total(); total != calls {
			calls, since = total, time.Now()
		}
		quiet := 300 * time.Millisecond
		if difference != nil { // it may have to wait for its next pass
			quiet = 3 * time.Second
		}
		_, done := c.balancers(c.theirs)
		_, doneToo := c.balancers(c.ours)
		if done && doneToo && time.Since(since) > testkit.Scaled(quiet) {
			return nil
		}
		return errors.Join(difference, fmt.Errorf("upstream's has programmed step %d: %t, ours: %t; the last call was %v ago", c.step, done, doneToo, time.Since(since)))
	}); err != nil {
		if _, done := c.balancers(c.ours); !done {
			c.Fatal(err)
		}
		return err // upstream's may have given up until it starts anew
	}
	return difference
}

// compare compares the load balancers. What upstream holds after changes may not be what it makes of the same
// objects at its start: then this counts, and compare says so.
func (c *windowsContest) compare() (byHistory bool) {
	c.Helper()
	difference := c.settle()
	if difference == nil {
		return false
	}
	c.startTheirs()
	if again := c.settle(); again != nil {
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
		before, theirsBefore := r.ours.HNS.State().Total(), r.theirs.HNS.State().Total()
		r.publish()
		if r.compare() {
			r.byHistory++
		} else {
			r.calls += r.ours.HNS.State().Total() - before
			r.theirCalls += r.theirs.HNS.State().Total() - theirsBefore
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
