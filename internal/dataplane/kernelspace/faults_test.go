package kernelspace

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// faultCodes are what calls fail with.
var faultCodes = []hns.Code{hns.NotRunning, hns.NotImplemented, hns.InvalidParameter, hns.PortAlreadyExists, hns.AlreadyExists, hns.NotFound, hns.EndpointNotFound}

// failing returns the code with which a call can fail. Handles are always closed, as by Windows; and nothing
// that exists is said not to.
func failing(c fakehns.Call, code hns.Code) hns.Code {
	changes := strings.HasPrefix(c.Function, "HcnCreate") || strings.HasPrefix(c.Function, "HcnModify")
	switch {
	case strings.HasPrefix(c.Function, "HcnClose"):
		return 0
	case hns.IsGone(code) && !changes:
		return hns.InvalidParameter
	}
	return code
}

// faults fails one call in twenty.
func faults(rng *rand.Rand) func(fakehns.Call) hns.Code {
	return func(c fakehns.Call) hns.Code {
		if rng.IntN(20) > 0 {
			return 0
		}
		return failing(c, faultCodes[rng.IntN(len(faultCodes))])
	}
}

// Whichever call fails, with whatever code: what is tried again then, or found by the next comparison, makes
// all right. Nothing of other programs is touched.
func TestFaultOfEachCall(t *testing.T) {
	first := desired(web("10.96.0.1:80", "10.1.2.1:8080"), web("10.96.0.2:80", "10.1.1.1:8080", "10.1.2.1:8080"))
	second := desired(web("10.96.0.1:80", "10.1.2.2:8080"), web("10.96.0.3:80", "10.1.2.1:8080"))
	change := &plan.Change{Removed: []plan.Key{dataplanetest.Key("10.96.0.2:80", model.TCP)}}
	for _, f := range second.Frontends {
		change.Set = append(change.Set, f)
	}
	for _, release := range []string{releaseReplaces, releaseModifies} {
		for _, code := range faultCodes {
			t.Run(fmt.Sprintf("%s %#x", release, uint32(code)), func(t *testing.T) {
				at := 0
				for calls := 1; at < calls; at++ {
					n := newNode(t, hns.L2Bridge, release)
					n.addBalancer("10.96.0.9", 80, n.addEndpoint("theirs", "10.1.2.9", hns.RemoteEndpoint))
					calls = 0
					n.Fault = func(c fakehns.Call) hns.Code {
						if calls++; calls == at+1 {
							return failing(c, code)
						}
						return 0
					}
					d := n.open()
					r := d.Reconcile(t.Context(), first)
					if r.Err == nil {
						r = again(t, d, first, r)
						if r.Err == nil {
							r = d.Apply(t.Context(), change)
						}
					}
					if r.Err != nil {
						r = d.Reconcile(t.Context(), second)
					}
					n.Fault = nil
					if r.Err != nil {
						r = d.Reconcile(t.Context(), second)
					}
					dataplanetest.OK(t, again(t, d, second, r))
					if ok, err := d.Verify(t.Context()); !ok || err != nil {
						dataplanetest.OK(t, d.Repair(t.Context()))
					}
					n.holds(
						"10.96.0.1 protocol 6 port 80 to 10.1.2.2 port 8080 flags 0 mapping 0 distribution 0 source -",
						"10.96.0.3 protocol 6 port 80 to 10.1.2.1 port 8080 flags 0 mapping 0 distribution 0 source -",
						"10.96.0.9 protocol 6 port 80 to 10.1.2.9 port 8080 flags 0 mapping 0 distribution 0 source -",
					)
					n.settled(d, second)
					if t.Failed() {
						t.Fatalf("call %d failed", at+1)
					}
				}
				if at < 30 {
					t.Errorf("only %d calls were made", at)
				}
			})
		}
	}
}

// again tries what failed once more, as the engine does.
func again(t *testing.T, d *Dataplane, desired *plan.Desired, r dataplane.Result) dataplane.Result {
	t.Helper()
	if r.Err != nil || len(r.Failed) == 0 {
		return r
	}
	c := &plan.Change{}
	for k := range r.Failed {
		if f := desired.Frontends[k]; f != nil {
			c.Set = append(c.Set, f)
		} else {
			c.Removed = append(c.Removed, k)
		}
	}
	return d.Apply(t.Context(), c)
}

// refusesDeletions has HNS refuse to delete load balancers.
func (n *node) refusesDeletions() {
	n.Fault = func(c fakehns.Call) hns.Code {
		if c.Function == "HcnDeleteLoadBalancer" {
			return hns.InvalidParameter
		}
		return 0
	}
}

// A load balancer that HNS refuses to delete serves on, and what takes its place is not even asked for: HNS would
// refuse that, too. Both are tried again. Others are served meanwhile.
func TestDeletionIsRefused(t *testing.T) {
	const service, health = "198.51.100.65:80", "198.51.100.65:10256"
	checked := func(target string) *plan.Frontend {
		f := web(service, target)
		f.Kind, f.HealthPort = plan.LoadBalancerIP, 10256
		return f
	}
	first, takes, other := checked("10.1.2.1:8080"), web(health, "10.1.2.2:9090"), web("10.96.0.9:80", "10.1.2.9:8080")
	for _, test := range []struct {
		name             string
		second           *plan.Desired
		failed, restarts []string
	}{
		{"another target port", desired(checked("10.1.2.1:9090"), other), []string{service}, []string{service}},
		{"a Service in place of health checks", desired(first, takes, other), []string{service, health}, []string{health}},
		{"a Service in place of health checks that go", desired(takes, other), []string{service, health}, []string{service, health}},
	} {
		for restarted, failed := range map[bool][]string{false: test.failed, true: test.restarts} {
			t.Run(fmt.Sprintf("%s, restarted %t", test.name, restarted), func(t *testing.T) {
				n := newNode(t, hns.L2Bridge, releaseModifies)
				n.settings.ForwardHealthChecks = true
				d := n.open()
				dataplanetest.OK(t, d.Reconcile(t.Context(), desired(first)))
				before := n.State()
				n.refusesDeletions()
				var r dataplane.Result
				if restarted {
					d = n.open()
					r = d.Reconcile(t.Context(), test.second)
				} else {
					r = d.Apply(t.Context(), between(desired(first), test.second))
				}
				n.refused(r, failed)
				for _, k := range failed { // each is tried again when it is its turn
					key := dataplanetest.Key(k, model.TCP)
					alone := dataplane.Result{Failed: map[plan.Key]error{key: r.Failed[key]}}
					if again := again(t, d, test.second, alone); again.Failed[key] == nil {
						t.Errorf("%s has not failed again: %v", k, again.Failed)
					}
				}
				after := n.State()
				if created := after.Calls["HcnCreateLoadBalancer"] - before.Calls["HcnCreateLoadBalancer"]; created != 1 {
					t.Errorf("HNS was asked for %d load balancers, and for the other Service it takes one", created)
				}
				for _, line := range before.Balancers() {
					if !slices.Contains(after.Balancers(), line) {
						t.Errorf("HNS does not have %s any more", line)
					}
				}
				n.Fault = nil
				dataplanetest.OK(t, again(t, d, test.second, r))
				n.settled(d, test.second)
			})
		}
	}
}

// refused fails the test unless these frontends have failed, for old load balancers.
func (n *node) refused(r dataplane.Result, frontends []string) {
	n.Helper()
	if r.Err != nil || len(r.Failed) != len(frontends) {
		n.Fatalf("failed: %v, %v", r.Err, r.Failed)
	}
	for _, k := range frontends {
		if err := r.Failed[dataplanetest.Key(k, model.TCP)]; err == nil || !strings.HasPrefix(err.Error(), "the old load balancer stays: delete LoadBalancer") {
			n.Errorf("%s: %v", k, err)
		}
	}
}

// between returns the change from one state to another.
func between(before, after *plan.Desired) *plan.Change {
	c := &plan.Change{}
	for k := range before.Frontends {
		if after.Frontends[k] == nil {
			c.Removed = append(c.Removed, k)
		}
	}
	for k, f := range after.Frontends {
		if before.Frontends[k] != f {
			c.Set = append(c.Set, f)
		}
	}
	return c
}

// An endpoint that is on another node now, and that HNS keeps for a load balancer at first, is made anew when HNS
// lets go.
func TestMovedEndpointIsKept(t *testing.T) {
	for _, release := range []string{releaseReplaces, releaseModifies} {
		n := newNode(t, hns.Overlay, release)
		d, before := n.open(), desired(web("10.96.0.1:80", "203.0.113.5:8080", "10.1.1.1:8080"))
		dataplanetest.OK(t, d.Reconcile(t.Context(), before))
		n.refusesDeletions()
		moved := desired(web("10.96.0.1:80", "203.0.113.5:8080", "10.1.1.1:8080"))
		moved.Settings.PrimaryIPs = []netip.Addr{netip.MustParseAddr("192.0.2.11")}
		r := d.Apply(t.Context(), &plan.Change{Settings: &moved.Settings})
		n.Fault = nil
		for range 2 { // it has to go before it can come
			r = again(t, d, moved, r)
		}
		dataplanetest.OK(t, r)
		if got := n.State().Summary(); !strings.Contains(got, "endpoint remote 203.0.113.5 at 192.0.2.11\n") {
			t.Errorf("%s: HNS has\n%s", release, got)
		}
		n.settled(d, moved)
	}
}
