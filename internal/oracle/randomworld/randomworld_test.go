package randomworld_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
)

var compareAddrs = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestSameSeedSameWorld(t *testing.T) {
	type draw struct {
		Worlds  []oracle.World
		Packets []oracle.Packet
	}
	once := func() (d draw) {
		rng := rand.New(rand.NewPCG(1, 2))
		w := randomworld.Random(rng, randomworld.Example())
		for range 50 {
			w = w.After(randomworld.RandomEvents(rng, w, randomworld.Example())...)
			d.Worlds = append(d.Worlds, w)
			d.Packets = append(d.Packets, randomworld.RandomPacket(rng, w, randomworld.Example()))
		}
		return d
	}
	if diff := cmp.Diff(once(), once(), compareAddrs); diff != "" {
		t.Errorf("two draws from one seed differ:\n%s", diff)
	}
}

func TestEventsDoNotModifyTheWorld(t *testing.T) {
	topology := randomworld.Example()
	for seed := range uint64(30) {
		w := randomworld.Random(rand.New(rand.NewPCG(seed, 0)), topology)
		same := randomworld.Random(rand.New(rand.NewPCG(seed, 0)), topology)
		rng := rand.New(rand.NewPCG(seed, 1))
		for later, step := w, 0; step < 20; step++ {
			later = later.After(randomworld.RandomEvents(rng, later, topology)...)
		}
		if diff := cmp.Diff(same, w, compareAddrs); diff != "" {
			t.Fatalf("seed %d: the world changed:\n%s", seed, diff)
		}
	}
}

// The generator is worth its name only if it meets the interesting cases. The
// list is what it must meet; the seeds are fixed, so the counts are too.
func TestInterestingCasesOccur(t *testing.T) {
	met := map[string]int{}
	meet := func(what string, is bool) {
		met[what] += 0
		if is {
			met[what]++
		}
	}
	topology := randomworld.Example()
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 0))
		w := randomworld.Random(rng, topology)
		for range 8 {
			w = w.After(randomworld.RandomEvents(rng, w, topology)...)
			meetWorld(w, meet)
			for range 20 {
				p := randomworld.RandomPacket(rng, w, topology)
				meetVerdict(p, oracle.Decide(w, p), meet)
			}
		}
	}
	for what, n := range met {
		if n < 20 {
			t.Errorf("met only %d times: %s", n, what)
		}
	}
}

func meetWorld(w oracle.World, meet func(string, bool)) {
	meet("no Node object", w.Node == nil)
	meet("no ServiceCIDR", len(w.ServiceCIDRs) == 0)
	for _, s := range w.Slices {
		orphan := !slices.ContainsFunc(w.Services, func(o *model.Service) bool { return o.Name == s.ServiceName() })
		meet("slice without a Service", orphan)
	}
	for i, s := range w.Services {
		meet("filter without a range", s.Filtered && len(s.SourceRanges) == 0)
		meet("filter at all external addresses", s.Filtered && s.FilterAll)
		meet("dual-stack", len(s.ClusterIPs) == 2)
		meet("first family IPv6", model.FamilyOf(s.ClusterIPs[0]) == model.IPv6)
		for _, o := range w.Services[:i] {
			shares := func(a, b []netip.Addr) bool {
				return slices.ContainsFunc(a, func(x netip.Addr) bool { return slices.Contains(b, x) })
			}
			meet("shared external IP", shares(s.ExternalIPs, o.ExternalIPs))
			meet("shared load balancer IP", shares(s.LoadBalancerIPs, o.LoadBalancerIPs))
			meet("external IP that is a ClusterIP", shares(s.ExternalIPs, o.ClusterIPs))
			meet("shared node port", s.Ports[0].NodePort != 0 && s.Ports[0].NodePort == o.Ports[0].NodePort)
			meet("same age", s.Created.Equal(o.Created))
		}
	}
}

func meetVerdict(p oracle.Packet, v oracle.Verdict, meet func(string, bool)) {
	for _, a := range []oracle.Action{oracle.Pass, oracle.Forward, oracle.Reject, oracle.Drop} {
		for _, f := range model.Families {
			for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
				meet(a.String()+" "+f.String()+" "+protocol.String(),
					v.Action == a && model.FamilyOf(p.Destination) == f && p.Protocol == protocol)
			}
		}
	}
	masqueraded := 0
	for _, e := range v.Endpoints {
		if v.MasqueradedTo[e] {
			masqueraded++
		}
	}
	meet("a choice of endpoints", len(v.Endpoints) > 1)
	meet("masqueraded to all", masqueraded > 1 && masqueraded == len(v.Endpoints))
	meet("masqueraded to nobody", v.Action == oracle.Forward && masqueraded == 0)
	meet("masqueraded to some", masqueraded > 0 && masqueraded < len(v.Endpoints))
	meet("affinity", v.Affinity > 0)
}

func TestIncompleteTopologies(t *testing.T) {
	full := randomworld.Example()
	small := randomworld.Topology{
		NodeName: "node-a", NodeIPs: full.NodeIPs[:1], EndpointPorts: full.EndpointPorts,
		ClusterIPRange: full.ClusterIPRange[:1], LocalPods: full.LocalPods[:1],
	}
	for name, topology := range map[string]randomworld.Topology{"empty": {}, "small": small} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 3))
			w := randomworld.Random(rng, topology)
			for range 200 {
				w = w.After(randomworld.RandomEvents(rng, w, topology)...)
				p := randomworld.RandomPacket(rng, w, topology)
				if v := oracle.Decide(w, p); v.Why == "" {
					t.Fatalf("no reason for %v of %v", v.Action, p)
				}
			}
			if got := len(w.Services) > 0; got != (name == "small") {
				t.Errorf("has Services: %v", got)
			}
		})
	}
}
