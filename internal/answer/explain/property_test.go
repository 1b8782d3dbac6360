package explain

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
)

// explore calls check with many random worlds, a packet for each, and its result.
func explore(t *testing.T, check func(t *testing.T, w oracle.World, p oracle.Packet, f *result)) {
	t.Helper()
	randomworld.Explore(func(c randomworld.Case) {
		check(t, c.World, c.Packet, resolvePacket(t, c.State, c.Planner, c.World, c.Packet))
		if t.Failed() {
			t.Fatalf("seed %d, packet %+v", c.Seed, c.Packet)
		}
	})
}

// resolvePacket resolves the question for a packet.
func resolvePacket(t *testing.T, state *model.State, planner *plan.Planner, w oracle.World, p oracle.Packet) *result {
	t.Helper()
	byRoute := func(ip netip.Addr) (bool, error) {
		return slices.ContainsFunc(w.LocalRoutes, func(r netip.Prefix) bool { return r.Contains(ip) }), nil
	}
	r, err := New(Options{IsLocal: byRoute}).parse(Question{
		To:        netip.AddrPortFrom(p.Destination, p.Port).String() + "/" + p.Protocol.String(),
		From:      p.Source.String(),
		Interface: p.Interface,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.View = engine.View{State: state, Desired: planner.Desired(), Planner: planner}
	r.judge = &verdict.Judge{View: r.View, Phase: func(plan.Key) (engine.FrontendStatus, bool) {
		return engine.FrontendStatus{Phase: engine.Programmed}, true
	}}
	results, _, err := r.resolve()
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results for one packet, %v", len(results), err)
	}
	return &results[0]
}

func TestAnswersAgreeWithTheOracle(t *testing.T) {
	words := map[oracle.Action]string{oracle.Pass: "untouched", oracle.Forward: "served", oracle.Reject: "rejected", oracle.Drop: "dropped"}
	reasons := map[string]int{}
	explore(t, func(t *testing.T, w oracle.World, p oracle.Packet, f *result) {
		c := composer{result: f, now: time.Now()}
		a := c.compose()
		said := oracle.Decide(w, p)
		if a.Fate != words[said.Action] {
			t.Errorf("the answer is %s, the oracle says %s: %s", a.Fate, said.Action, said.Why)
		}
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
			if yes := said.MasqueradedTo[netip.MustParseAddrPort(e.Address)]; e.Masqueraded != yes {
				t.Errorf("%s is masqueraded: %v, the oracle says %v", e.Address, e.Masqueraded, yes)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the pool (-planned +explained):\n%s", diff)
		}
	})
	missing := slices.DeleteFunc([]string{"in-pool", "missing-port", "not-ready", "not-serving", "duplicate",
		"terminating", "hinted-elsewhere", "not-here"}, func(why string) bool { return reasons[why] > 0 })
	if len(missing) > 0 {
		t.Errorf("no endpoint was left out as %s: the test has holes, it saw %v", strings.Join(missing, ", "),
			slices.Sorted(maps.Keys(reasons)))
	}
}
