package kernelspace

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

func TestReconcileFirst(t *testing.T) {
	n := newNode(t, hns.L2Bridge, releaseModifies)
	if r := n.open().Apply(t.Context(), change(web("10.96.0.1:80", "10.1.1.1:8080"))); !errors.Is(r.Err, dataplane.ErrUnknown) {
		t.Errorf("applied: %v", r.Err)
	}
}

// holds fails the test unless HNS has these lines about load balancers.
func (n *node) holds(lines ...string) {
	n.Helper()
	var got []string
	for line := range strings.Lines(n.State().Summary()) {
		if line, ok := strings.CutPrefix(strings.TrimSpace(line), "balancer "); ok {
			got = append(got, line)
		}
	}
	if strings.Join(got, "\n") != strings.Join(lines, "\n") {
		n.Errorf("HNS has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// Each kind of frontend has the flags that HNS needs for it.
func TestKindsOfFrontends(t *testing.T) {
	n := newNode(t, hns.L2Bridge, releaseModifies)
	n.settings.DSR, n.settings.ForwardHealthChecks = true, true
	cluster, near, kept := web("10.96.0.1:80", "10.1.1.1:8080", "10.1.2.1:8080"), web("0.0.0.0:30080", "10.1.1.1:8080"), web("198.51.100.65:80", "10.1.1.1:8080")
	cluster.Affinity = 60
	near.Kind, near.Masquerade = plan.NodePort, plan.MasqueradeNever
	kept.Kind, kept.PreserveDestination, kept.HealthPort = plan.LoadBalancerIP, true, 10256
	external := web("198.51.100.1:53", "10.1.2.1:5353")
	external.Kind, external.Protocol = plan.ExternalIP, model.UDP
	six := web("[fd96::1]:80", "[fd01:0:0:2::1]:8080")
	nobody := web("10.96.0.2:80")
	d := n.open()
	all := desired(cluster, near, kept, external, six, nobody)
	dataplanetest.OK(t, d.Reconcile(t.Context(), all))
	n.holds(
		"* protocol 6 port 30080 to 10.1.1.1 port 8080 flags 1 mapping 18 distribution 0 source -",
		"10.96.0.1 protocol 6 port 80 to 10.1.1.1 10.1.2.1 port 8080 flags 1 mapping 0 distribution 2 source -",
		"198.51.100.1 protocol 17 port 53 to 10.1.2.1 port 5353 flags 0 mapping 16 distribution 0 source -",
		"198.51.100.65 protocol 6 port 10256 to 10.1.1.200 port 10256 flags 0 mapping 12 distribution 0 source -",
		"198.51.100.65 protocol 6 port 80 to 10.1.1.1 port 8080 flags 1 mapping 28 distribution 0 source -",
		"fd96::1 protocol 6 port 80 to fd01:0:0:2::1 port 8080 flags 3 mapping 0 distribution 0 source -",
	)
	n.settled(d, all)
	at := dataplane.Destination{Key: cluster.Key, IP: cluster.Addr}
	if got, err := d.Describe(t.Context(), at, netip.Addr{}); err != nil || !got.Present || got.RouteSize != 2 || !strings.Contains(got.Objects[0].What, "endpoints answer directly, a client keeps its endpoint") {
		t.Errorf("described as %+v, %v", got, err)
	}
	at.Key = nobody.Key
	if got, err := d.Describe(t.Context(), at, netip.Addr{}); err != nil || got.Present {
		t.Errorf("a frontend without endpoints is described as %+v, %v", got, err)
	}
}

// On an overlay endpoints say which node they are on, and connections have a source address.
func TestOverlay(t *testing.T) {
	n := newNode(t, hns.Overlay, releaseModifies)
	d := n.open()
	pods, outside := web("10.96.0.1:80", "10.1.2.1:8080"), web("10.96.0.2:80", "203.0.113.5:8080", "10.1.2.2:8080")
	dataplanetest.OK(t, d.Reconcile(t.Context(), desired(pods, outside)))
	n.holds(
		"10.96.0.1 protocol 6 port 80 to 10.1.2.1 port 8080 flags 0 mapping 0 distribution 0 source 10.1.1.250",
		"10.96.0.2 protocol 6 port 80 to 10.1.2.2 203.0.113.5 port 8080 flags 0 mapping 0 distribution 0 source 192.0.2.10",
	)
	for _, line := range []string{"remote 10.1.2.1 at 192.0.2.20", "remote 203.0.113.5 at 192.0.2.10", "remote 10.96.0.1 at 192.0.2.10", "local 10.1.1.250"} {
		if !strings.Contains(n.State().Summary(), "endpoint "+line+"\n") {
			t.Errorf("no endpoint %s in\n%s", line, n.State().Summary())
		}
	}
	n.settled(d, desired(pods, outside))

	// The node gets another address.
	moved := desired(pods, outside)
	moved.Settings.PrimaryIPs = []netip.Addr{netip.MustParseAddr("192.0.2.11")}
	dataplanetest.OK(t, d.Apply(t.Context(), &plan.Change{Settings: &moved.Settings}))
	if got := n.State().Summary(); strings.Contains(got, "192.0.2.10\n") || !strings.Contains(got, "remote 203.0.113.5 at 192.0.2.11\n") {
		t.Errorf("HNS has\n%s", got)
	}
	n.settled(d, moved)
}

// The pods of a node that joins are outside of the cluster until the network has its route.
func TestNodeJoinsOverlay(t *testing.T) {
	for _, change := range []bool{false, true} {
		n := newNode(t, hns.Overlay, releaseModifies)
		d, all := n.open(), desired(web("10.96.0.1:80", "10.1.2.1:8080", "10.1.3.1:8080"))
		dataplanetest.OK(t, d.Reconcile(t.Context(), all))
		n.addRoute("10.1.4.0/24", "192.0.2.40")
		n.addRoute("10.1.3.0/24", "192.0.2.30")
		if change { // of a Service with an endpoint that is not known
			other := web("10.96.0.2:80", "10.1.4.1:8080")
			all.Frontends[other.Key] = other
			dataplanetest.OK(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{other}}))
		} else {
			if ok, err := d.Verify(t.Context()); ok || err != nil {
				t.Errorf("Verify says %t, %v, with another route", ok, err)
			}
			dataplanetest.OK(t, d.Repair(t.Context()))
		}
		if got := n.State().Summary(); !strings.Contains(got, "endpoint remote 10.1.3.1 at 192.0.2.30\n") ||
			!strings.Contains(got, "balancer 10.96.0.1 protocol 6 port 80 to 10.1.2.1 10.1.3.1 port 8080 flags 0 mapping 0 distribution 0 source 10.1.1.250\n") {
			t.Errorf("HNS has\n%s", got)
		}
		n.settled(d, all)
		n.reverseRoutes()
		n.settled(d, all)
	}
}

// One endpoint more or less is one change of a load balancer, however many there are.
func TestCallsForAChange(t *testing.T) {
	n := newNode(t, hns.L2Bridge, releaseModifies)
	d, all := n.open(), desired()
	service := func(i int) *plan.Frontend {
		var endpoints []string
		for e := range 5 {
			endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.%d:8080", 2+e, i/250, i%250+1))
		}
		return web(fmt.Sprintf("10.96.%d.%d:80", i/250, i%250+1), endpoints...)
	}
	for i := range testkit.Extent(100, 100, 1000) {
		f := service(i)
		all.Frontends[f.Key] = f
	}
	start := n.State().Total()
	dataplanetest.OK(t, d.Reconcile(t.Context(), all))
	before := n.State()
	f := service(7)
	f.Route.Endpoints = append(f.Route.Endpoints[:4:4], dataplanetest.Endpoints("10.9.9.9:8080")...)
	dataplanetest.OK(t, d.Apply(t.Context(), change(f)))
	after := n.State()
	calls := after.Total() - before.Total()
	t.Logf("%d Services of 5 endpoints: %d calls at the start, and %d for one endpoint in place of another", len(all.Frontends), before.Total()-start, calls)
	if calls > 9 {
		t.Errorf("one endpoint in place of another takes %d calls", calls)
	}
	if n := after.Calls["HcnModifyLoadBalancer"]; n != 1 {
		t.Errorf("%d load balancers are changed", n)
	}
	n.sound()
}

// Objects of other programs are neither changed nor deleted, whatever happens.
func TestStrangers(t *testing.T) {
	n := newNode(t, hns.L2Bridge, releaseModifies)
	theirs := n.addEndpoint("theirs", "10.1.2.9", hns.RemoteEndpoint)
	n.addBalancer("10.96.0.9", 80, theirs)
	n.addBalancer("10.96.0.10", 80, theirs)
	before := n.State().Summary()
	d := n.open()
	taken, served, own := web("10.96.0.9:80", "10.1.2.1:8080"), web("10.96.0.10:80", "10.1.2.9:8080"), web("10.96.0.1:80", "10.1.2.9:8080")
	r := d.Reconcile(t.Context(), desired(taken, served, own))
	if err := r.Failed[taken.Key]; r.Err != nil || len(r.Failed) != 1 || !errors.Is(err, hns.PortAlreadyExists) || !strings.Contains(err.Error(), "Remove-HnsPolicyList") {
		t.Errorf("failed: %v, %v", r.Err, r.Failed)
	}
	if ok, err := d.Verify(t.Context()); !ok || err != nil {
		t.Errorf("Verify says %t, %v", ok, err)
	}
	dataplanetest.OK(t, d.Apply(t.Context(), &plan.Change{Removed: []plan.Key{taken.Key, served.Key, own.Key}}))
	if after := n.State().Summary(); after != before {
		t.Errorf("HNS had\n%s\nand has\n%s", before, after)
	}
	dataplanetest.OK(t, d.Reconcile(t.Context(), desired(own)))
	if err := remove(t.Context(), d.client); err != nil {
		t.Error(err)
	}
	if after := n.State().Summary(); after != before {
		t.Errorf("after removing all HNS has\n%s", after)
	}
	n.sound()
}

// A process that ends at any call leaves nothing that the next one does not recognise.
func TestKilledAtAnyCall(t *testing.T) {
	first := desired(web("10.96.0.1:80", "10.1.2.1:8080"), web("10.96.0.2:80", "10.1.1.1:8080", "10.1.2.1:8080"))
	second := desired(web("10.96.0.1:80", "10.1.2.2:8080"), web("10.96.0.3:80", "10.1.2.1:8080"))
	for _, release := range []string{releaseReplaces, releaseModifies} {
		for calls := 0; ; calls++ {
			n := newNode(t, hns.L2Bridge, release)
			dataplanetest.OK(t, n.open().Reconcile(t.Context(), first))
			left := calls
			n.Fault = func(fakehns.Call) hns.Code {
				if left--; left < 0 {
					return hns.NotRunning // nothing is done from here on
				}
				return 0
			}
			err := n.open().Reconcile(t.Context(), second).Err
			n.Fault = nil
			n.DropHandles()
			d := n.open()
			dataplanetest.OK(t, d.Reconcile(t.Context(), second))
			n.holds(
				"10.96.0.1 protocol 6 port 80 to 10.1.2.2 port 8080 flags 0 mapping 0 distribution 0 source -",
				"10.96.0.3 protocol 6 port 80 to 10.1.2.1 port 8080 flags 0 mapping 0 distribution 0 source -",
			)
			n.settled(d, second)
			if err == nil {
				break // it was not killed
			}
		}
	}
}

// A load balancer that HNS refuses harms no other, and is counted and tried again.
func TestOneIsRefused(t *testing.T) {
	n := newNode(t, hns.L2Bridge, releaseModifies)
	bad, good := web("10.96.0.1:80", "10.1.2.1:8080"), web("10.96.0.2:80", "10.1.2.1:8080")
	n.Fault = func(c fakehns.Call) hns.Code {
		if c.Function == "HcnCreateLoadBalancer" && strings.Contains(c.Strings[0], "10.96.0.1\"") {
			return fakehns.InvalidIP
		}
		return 0
	}
	d := n.open()
	if r := d.Reconcile(t.Context(), desired(bad, good)); r.Err != nil || len(r.Failed) != 1 || r.Failed[bad.Key] == nil {
		t.Errorf("failed: %v, %v", r.Err, r.Failed)
	}
	n.holds("10.96.0.2 protocol 6 port 80 to 10.1.2.1 port 8080 flags 0 mapping 0 distribution 0 source -")
	counted := map[string]float64{}
	d.Count(t.Context(), model.Families[:], func(metric string, value float64, labels ...string) {
		counted[metric+" "+strings.Join(labels, " ")] = value
	})
	if len(counted) != 1 || counted[createFailures+" IPv4 clusterip invalid_ip"] != 1 {
		t.Errorf("counted %v", counted)
	}
	n.Fault = nil
	dataplanetest.OK(t, d.Apply(t.Context(), change(bad)))
	n.settled(d, desired(bad, good))
}

// Pods of this node have endpoints of the CNI plugin's, which may come late, and in place of one
// elsewhere.
func TestPodsOfThisNode(t *testing.T) {
	n := newNode(t, hns.L2Bridge, releaseModifies)
	d, f, other := n.open(), web("10.96.0.1:80", "10.1.1.77:8080", "10.1.2.1:8080"), web("10.96.0.2:80", "10.1.1.77:8080")
	other.Route.Endpoints[0].Local = false // its slice does not say where it is
	r := d.Reconcile(t.Context(), desired(f, other))
	if r.Err != nil || r.Failed[f.Key] == nil || !strings.Contains(r.Failed[f.Key].Error(), "10.1.1.77") {
		t.Errorf("failed: %v, %v", r.Err, r.Failed)
	}
	n.addEndpoint("pod", "10.1.1.77", 0)
	if ok, err := d.Verify(t.Context()); ok || err != nil {
		t.Errorf("Verify says %t, %v, with a pod that has the address of a remote endpoint", ok, err)
	}
	dataplanetest.OK(t, d.Apply(t.Context(), change(f)))
	if got := n.State().Summary(); strings.Contains(got, "remote 10.1.1.77") || strings.Count(got, " 10.1.1.77 ") != 2 {
		t.Errorf("HNS has\n%s", got)
	}
	n.settled(d, desired(f, other))
}

// Without HNS, or without its network, all is tried again; a network that was made anew gets everything.
func TestServiceAndNetworkComeAndGo(t *testing.T) {
	n := newNode(t, hns.L2Bridge, releaseModifies)
	d, all := n.open(), desired(web("10.96.0.1:80", "10.1.1.1:8080", "10.1.2.1:8080"))
	n.Fault = func(fakehns.Call) hns.Code { return hns.NotRunning }
	if r := d.Reconcile(t.Context(), all); !errors.Is(r.Err, hns.NotRunning) {
		t.Errorf("without HNS: %v", r.Err)
	}
	n.Fault = nil
	dataplanetest.OK(t, d.Reconcile(t.Context(), all))
	before := n.State()
	for _, b := range before.LoadBalancers {
		n.Do(fakehns.Call{Function: "HcnDeleteLoadBalancer", ID: b["ID"].(string)})
	}
	n.Do(fakehns.Call{Function: "HcnDeleteNetwork", ID: before.Networks[0]["ID"].(string)})
	if ok, err := d.Verify(t.Context()); ok || err != nil {
		t.Errorf("Verify says %t, %v, without the network", ok, err)
	}
	if r := d.Repair(t.Context()); r.Err == nil || !strings.Contains(r.Err.Error(), `no network "cbr0"`) {
		t.Errorf("without the network: %v", r.Err)
	}
	n.addNetwork(hns.L2Bridge)
	dataplanetest.OK(t, d.Reconcile(t.Context(), all))
	n.settled(d, all)
}

// A Service that has the address and port of health checks goes before them, whichever comes first.
func TestHealthChecksGiveWay(t *testing.T) {
	n := newNode(t, hns.L2Bridge, releaseModifies)
	n.settings.ForwardHealthChecks = true
	checked, service := web("198.51.100.65:80", "10.1.1.1:8080"), web("198.51.100.65:10256", "10.1.2.1:9090")
	checked.Kind, checked.HealthPort, service.Kind = plan.LoadBalancerIP, 10256, plan.LoadBalancerIP
	to80 := "198.51.100.65 protocol 6 port 80 to 10.1.1.1 port 8080 flags 0 mapping 16 distribution 0 source -"
	health := "198.51.100.65 protocol 6 port 10256 to 10.1.1.200 port 10256 flags 0 mapping 0 distribution 0 source -"
	d := n.open()
	dataplanetest.OK(t, d.Reconcile(t.Context(), desired(checked)))
	n.holds(health, to80)
	dataplanetest.OK(t, d.Apply(t.Context(), change(service)))
	n.holds("198.51.100.65 protocol 6 port 10256 to 10.1.2.1 port 9090 flags 0 mapping 16 distribution 0 source -", to80)
	n.settled(d, desired(checked, service))
	dataplanetest.OK(t, d.Apply(t.Context(), &plan.Change{Removed: []plan.Key{service.Key}}))
	n.holds(health, to80)
	n.settled(d, desired(checked))
}

func TestCheckFamily(t *testing.T) {
	for _, test := range []struct {
		network, release string
		served           bool
	}{{hns.L2Bridge, "9.5", false}, {hns.L2Bridge, "11.10", true}, {hns.Overlay, "15.5", false}} {
		n := newNode(t, test.network, test.release)
		d := n.open()
		if err := d.CheckFamily(t.Context(), model.IPv6); (err == nil) != test.served {
			t.Errorf("%s %s: %v", test.network, test.release, err)
		}
		six := web("[fd96::1]:80", "[fd01:0:0:2::1]:8080")
		if r := d.Reconcile(t.Context(), desired(six)); r.Err != nil || (len(r.Failed) == 0) != test.served {
			t.Errorf("%s %s: %v, %v", test.network, test.release, r.Err, r.Failed)
		}
	}
}
