package kernelspace

import (
	"fmt"
	"math/rand/v2"
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
