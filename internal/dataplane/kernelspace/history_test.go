package kernelspace

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/kernel/hns"
	"sluice/internal/testkit"
)

var networkTypes = []string{hns.L2Bridge, hns.L2Tunnel, hns.Overlay}

// What HNS holds after changes is what a new process makes of an empty HNS, in any network and with
// any release.
func TestHistories(t *testing.T) {
	for _, networkType := range networkTypes {
		for _, release := range []string{releaseReplaces, releaseModifies} {
			t.Run(networkType+" "+release, func(t *testing.T) {
				balancers := 0
				for seed := range uint64(testkit.Extent(10, 40, 400)) {
					n, h := newNode(t, networkType, release), dataplanetest.NewHistory(rand.New(rand.NewPCG(seed, 0)), Mode.Adjust)
					n.settings.DSR, n.settings.ForwardHealthChecks = seed%2 == 0, true
					d := n.open()
					if r := d.Reconcile(t.Context(), h.Desired()); r.Err != nil {
						t.Fatal(r.Err)
					}
					for range 20 {
						if r := d.Apply(t.Context(), h.Next()); r.Err != nil {
							t.Fatal(r.Err)
						}
					}
					fresh := newNode(t, networkType, release)
					fresh.settings = n.settings
					if r := fresh.open().Reconcile(t.Context(), h.End()); r.Err != nil {
						t.Fatal(r.Err)
					}
					if diff := cmp.Diff(fresh.State().Summary(), n.State().Summary()); diff != "" {
						t.Fatalf("seed %d (-from scratch +by changes)\n%s", seed, diff)
					}
					n.settled(d, h.End())
					balancers += len(n.State().LoadBalancers)
				}
				if balancers < 20 {
					t.Errorf("there were %d load balancers only", balancers)
				}
			})
		}
	}
}

// A call that fails harms nothing for good: when calls succeed again, what HNS holds is right.
func TestFaultAtAnyCall(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(testkit.Extent(30, 150, 2000)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := newNode(t, networkTypes[seed%3], []string{releaseReplaces, releaseModifies}[seed%2])
			h, d := dataplanetest.NewHistory(rand.New(rand.NewPCG(seed, 0)), Mode.Adjust), n.open()
			n.Fault = faults(rng)
			known := d.Reconcile(t.Context(), h.Desired()).Err == nil
			for range 20 {
				c := h.Next()
				if known {
					known = d.Apply(t.Context(), c).Err == nil
				} else {
					known = d.Reconcile(t.Context(), h.Desired()).Err == nil
				}
			}
			n.Fault = nil
			if r := d.Reconcile(t.Context(), h.End()); r.Err != nil {
				t.Fatal(r.Err)
			}
			fresh := newNode(t, networkTypes[seed%3], releaseModifies)
			if r := fresh.open().Reconcile(t.Context(), h.End()); r.Err != nil {
				t.Fatal(r.Err)
			}
			if diff := cmp.Diff(fresh.State().Summary(), n.State().Summary()); diff != "" {
				t.Errorf("(-without faults +with them)\n%s", diff)
			}
			n.settled(d, h.End())
		})
	}
}
