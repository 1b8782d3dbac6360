package oracle_test

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
)

var compareAddrs = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

// explore calls check with many random worlds and a packet for each.
func explore(t *testing.T, check func(*testing.T, *rand.Rand, oracle.World, oracle.Packet)) {
	t.Helper()
	topology := randomworld.Example()
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 7))
		w := randomworld.Random(rng, topology)
		for range 20 {
			w = w.After(randomworld.RandomEvents(rng, w, topology)...)
			p := randomworld.RandomPacket(rng, w, topology)
			check(t, rng, w, p)
			if t.Failed() {
				t.Fatalf("seed %d, packet %+v", seed, p)
			}
		}
	}
}

// same fails the test unless both worlds decide alike about the packet.
func same(t *testing.T, p oracle.Packet, a, b oracle.World) {
	t.Helper()
	alike(t, oracle.Decide(a, p), oracle.Decide(b, p))
}

// alike compares verdicts. It looks for the difference only if there is one,
// which is much faster.
func alike(t *testing.T, want, got oracle.Verdict) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("verdicts differ (-want +got):\n%s", cmp.Diff(want, got, compareAddrs))
	}
}

func TestVerdictsAreWellFormed(t *testing.T) {
	explore(t, func(t *testing.T, _ *rand.Rand, w oracle.World, p oracle.Packet) {
		v := oracle.Decide(w, p)
		if v.Why == "" {
			t.Error("no reason")
		}
		if (v.Action == oracle.Forward) != (len(v.Endpoints) > 0) {
			t.Errorf("%v with %d endpoints", v.Action, len(v.Endpoints))
		}
		keys := slices.SortedFunc(maps.Keys(v.MasqueradedTo), netip.AddrPort.Compare)
		if !slices.Equal(v.Endpoints, keys) {
			t.Errorf("endpoints %v are not the sorted set of MasqueradedTo: %v", v.Endpoints, keys)
		}
		for _, e := range v.Endpoints {
			if model.FamilyOf(e.Addr()) != model.FamilyOf(p.Destination) {
				t.Errorf("endpoint %v of the other family", e)
			}
			if e.Addr() == p.Source && !v.MasqueradedTo[e] {
				t.Errorf("hairpin to %v without masquerade", e)
			}
		}
	})
}

func TestOrderDoesNotMatter(t *testing.T) {
	explore(t, func(t *testing.T, rng *rand.Rand, w oracle.World, p oracle.Packet) {
		mixed := w
		mixed.Services = shuffled(rng, w.Services)
		mixed.Slices = shuffled(rng, w.Slices)
		mixed.ServiceCIDRs = shuffled(rng, w.ServiceCIDRs)
		for i, s := range mixed.Slices {
			c := *s
			c.Endpoints, c.Ports = shuffled(rng, s.Endpoints), shuffled(rng, s.Ports)
			mixed.Slices[i] = &c
		}
		for i, s := range mixed.Services {
			c := *s
			c.Ports, c.SourceRanges = shuffled(rng, s.Ports), shuffled(rng, s.SourceRanges)
			c.ClusterIPs, c.ExternalIPs = shuffled(rng, s.ClusterIPs), shuffled(rng, s.ExternalIPs)
			mixed.Services[i] = &c
		}
		same(t, p, w, mixed)
	})
}

func shuffled[T any](rng *rand.Rand, list []T) []T {
	list = slices.Clone(list)
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func TestOnlyTheServiceOfAVerdictMatters(t *testing.T) {
	explore(t, func(t *testing.T, _ *rand.Rand, w oracle.World, p oracle.Packet) {
		v := oracle.Decide(w, p)
		if strings.Contains(v.Why, "as if it were not there") {
			return // others decide then
		}
		for _, s := range w.Services {
			less := w.After(model.DeleteService{Name: s.Name})
			if s.Name != v.Service {
				same(t, p, w, less)
			} else if oracle.Decide(less, p).Service == v.Service {
				t.Errorf("%v is gone and still has the verdict", v.Service)
			}
		}
	})
}

func TestOnlyTheSlicesOfThatServiceMatter(t *testing.T) {
	explore(t, func(t *testing.T, _ *rand.Rand, w oracle.World, p oracle.Packet) {
		v := oracle.Decide(w, p)
		for _, s := range w.Slices {
			if s.ServiceName() != v.Service || s.Family != model.FamilyOf(p.Destination) {
				same(t, p, w, w.After(model.DeleteSlice{Name: s.Name}))
			}
		}
	})
}

func TestDuplicateSliceChangesNothing(t *testing.T) {
	explore(t, func(t *testing.T, _ *rand.Rand, w oracle.World, p oracle.Packet) {
		for _, s := range w.Slices {
			twin := *s
			twin.Name.Name = "0-" + s.Name.Name
			same(t, p, w, w.After(model.SetSlice{Slice: &twin}))
		}
	})
}

func TestMasqueradeAllChangesOnlySources(t *testing.T) {
	explore(t, func(t *testing.T, _ *rand.Rand, w oracle.World, p oracle.Packet) {
		all := w
		all.Config.MasqueradeAll = true
		want := oracle.Decide(w, p)
		toClusterIP := slices.ContainsFunc(w.Services, func(s *model.Service) bool {
			return s.Name == want.Service && slices.Contains(s.ClusterIPs, p.Destination)
		})
		for e := range want.MasqueradedTo {
			want.MasqueradedTo[e] = want.MasqueradedTo[e] || toClusterIP
		}
		alike(t, want, oracle.Decide(all, p))
	})
}

func TestWorldAndStateAgree(t *testing.T) {
	topology := randomworld.Example()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 9))
		w := randomworld.Random(rng, topology)
		state := model.NewState()
		state.Apply(&model.Dirty{}, w.Events()...)
		for step := range 30 {
			for range 5 {
				p := randomworld.RandomPacket(rng, w, topology)
				again := oracle.FromState(w.Config, state)
				again.LocalRoutes = w.LocalRoutes // which are in no object
				same(t, p, w, again)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
			events := randomworld.RandomEvents(rng, w, topology)
			w = w.After(events...)
			state.Apply(&model.Dirty{}, events...)
		}
	}
}
