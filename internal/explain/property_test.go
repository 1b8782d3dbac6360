package explain

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
)

// explore calls check with many random worlds, a packet for each, and what is
// found out about it.
func explore(t *testing.T, check func(t *testing.T, w oracle.World, p oracle.Packet, f *finding)) {
	t.Helper()
	topology := randomworld.Example()
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 11))
		w := randomworld.Random(rng, topology)
		w.Config.FrontendsOnly = seed%5 == 0
		w.Config.NoIPv6 = seed%7 == 0
		state, planner := model.NewState(), plan.New(w.Config)
		var dirty model.Dirty
		state.Apply(&dirty, w.Events()...)
		for range 20 {
			events := randomworld.RandomEvents(rng, w, topology)
			w = w.After(events...)
			state.Apply(&dirty, events...)
			planner.Update(state, &dirty)
			dirty = model.Dirty{}
			p := randomworld.RandomPacket(rng, w, topology)
			check(t, w, p, lookUp(t, state, planner, w, p))
			if t.Failed() {
				t.Fatalf("seed %d, packet %+v", seed, p)
			}
		}
	}
}

// lookUp asks the question that means a packet.
func lookUp(t *testing.T, state *model.State, planner *plan.Planner, w oracle.World, p oracle.Packet) *finding {
	t.Helper()
	byRoute := func(ip netip.Addr) (bool, error) { return anyContains(w.LocalRoutes, ip), nil }
	l, err := New(Options{IsLocal: byRoute}).understand(Question{
		To:        netip.AddrPortFrom(p.Destination, p.Port).String() + "/" + p.Protocol.String(),
		From:      p.Source.String(),
		Interface: p.Interface,
	})
	if err != nil {
		t.Fatal(err)
	}
	l.View = engine.View{State: state, Desired: planner.Desired(), Planner: planner}
	findings, _ := l.look()
	if len(findings) != 1 {
		t.Fatalf("%d findings for one packet", len(findings))
	}
	return &findings[0]
}

// outcome is a verdict in a form in which both sides have it.
type outcome struct {
	Verdict     string
	Masqueraded map[string]bool
}

func TestTheOracleAgreesWithEveryVerdict(t *testing.T) {
	words := map[oracle.Action]Verdict{
		oracle.Pass: Untouched, oracle.Forward: Served, oracle.Reject: Rejected, oracle.Drop: Dropped,
	}
	seen := map[Cause]int{}
	explore(t, func(t *testing.T, w oracle.World, p oracle.Packet, f *finding) {
		verdict := oracle.Decide(w, p)
		want := outcome{words[verdict.Action].String(), map[string]bool{}}
		for e, yes := range verdict.MasqueradedTo {
			want.Masqueraded[e.String()] = yes
		}
		got := outcome{f.decision.Verdict.String(), map[string]bool{}}
		if f.decision.Verdict == Served {
			for _, e := range f.decision.Route.Endpoints {
				got.Masqueraded[e.String()] = f.decision.Masqueraded(e.Addr())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the oracle says: %s (-oracle +explain):\n%s", verdict.Why, diff)
		}
		seen[f.decision.Cause]++
	})
	for _, cause := range []Cause{ByFrontend, BySourceRanges, NoEndpoints, NoLocalEndpoints, NoSuchPort, UnusedAddress, NotAService, NoIPv6} {
		if seen[cause] == 0 {
			t.Errorf("no packet was decided by %q: the test has holes", cause)
		}
	}
}

func TestTheOracleAgreesWhoKeepsFlows(t *testing.T) {
	outsidePools := 0
	explore(t, func(t *testing.T, w oracle.World, p oracle.Packet, f *finding) {
		fe := f.decision.Frontend
		if fe == nil {
			return
		}
		for _, slice := range w.Slices {
			for _, port := range slice.Ports {
				for _, e := range slice.Endpoints {
					at := netip.AddrPortFrom(e.Addr, port.Port)
					if want, got := oracle.KeepsFlows(w, p, at), fe.Serves(at); want != got {
						t.Errorf("%s serves %s: %v, the oracle says %v", at, fe.Key, got, want)
					}
				}
			}
		}
		outsidePools += len(fe.AlsoServing)
	})
	if outsidePools == 0 {
		t.Error("no endpoint served outside the pools: the test has holes")
	}
}

func TestEveryEndpointThatIsSaidToBeInThePoolIs(t *testing.T) {
	reasons := map[string]int{}
	explore(t, func(t *testing.T, _ oracle.World, _ oracle.Packet, f *finding) {
		c := composer{finding: f, now: time.Now()}
		a := c.compose()
		var buffer bytes.Buffer
		if err := Write(&buffer, &Reply{Answers: []Answer{a}}); err != nil {
			t.Error(err)
		}
		if f.decision.Frontend == nil {
			return
		}
		want := map[string]struct{}{}
		for _, e := range f.decision.Route.Endpoints {
			want[e.String()] = struct{}{}
		}
		got := map[string]struct{}{}
		for _, e := range a.Endpoints {
			reasons[e.Reason]++
			if !e.In {
				continue
			}
			if _, twice := got[e.Address]; twice {
				t.Errorf("%s is in the pool twice", e.Address)
			}
			got[e.Address] = struct{}{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the pool (-planned +explained):\n%s", diff)
		}
	})
	missing := slices.DeleteFunc([]string{"in-pool", "no-such-port", "not-ready", "not-serving", "duplicate",
		"terminating", "hinted-elsewhere", "not-here"}, func(why string) bool { return reasons[why] > 0 })
	if len(missing) > 0 {
		t.Errorf("no endpoint was left out as %s: the test has holes, it saw %v", strings.Join(missing, ", "),
			slices.Sorted(maps.Keys(reasons)))
	}
}
