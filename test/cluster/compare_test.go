package cluster

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/mode"
	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/test/cluster/apiserver"
	"sluice/test/fakeapi"
)

var (
	seed    = flag.Uint64("seed", 1, "where the random numbers begin")
	seeds   = flag.Int("seeds", 3, "random clusters to compare with upstream in each mode, from -seed on")
	states  = flag.Int("states", 4, "states of each random cluster, one after the other")
	packets = flag.Int("packets", 48, "random packets to send in each state")
	rival   = flag.String("upstream", "", "path of the kube-proxy to compare with; empty for the one that is built here")
	survey  = flag.Bool("survey", false, "do not stop at the first difference")
	leftOut = flag.String("leave-out", "", "oddities that objects and configurations shall not have, separated by commas")
)

// Whatever objects there are, packets have the same outcome as with upstream's
// kube-proxy, except for the documented differences.
func TestSameOutcomeAsUpstream(t *testing.T) {
	t.Logf("seeds from %d on (repeat with -seed)", *seed)
	theirs := *rival
	if theirs == "" {
		binaries, err := apiserver.Build(t.Context(), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		theirs = binaries.KubeProxy
	}
	own, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var all tally
			for i := range *seeds {
				seed := *seed + uint64(i)
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					c := newContest(t, mode, seed, &all)
					c.start("upstream", theirs)
					c.start("sluice", own, "--control-socket", "")
					c.run(*states, *packets)
				})
				if t.Failed() && !*survey {
					t.Fatalf("repeat with -run TestSameOutcomeAsUpstream/%s -seed %d -seeds 1", mode, seed)
				}
			}
			t.Logf("%d seeds: %v", *seeds, all)
			all.expectVariety(t)
		})
	}
}

// contest is two labs with the same objects, one with upstream's kube-proxy and one
// with ours.
type contest struct {
	*testing.T
	mode   string
	rng    *rand.Rand
	odd    speller
	server *fakeapi.Server
	lanes  []*lane
	tally  *tally

	topology randomworld.Topology
	world    oracle.World
	config   []byte // of both proxies
	step     int
}

func newContest(t *testing.T, mode string, seed uint64, all *tally) *contest {
	c := &contest{T: t, mode: mode, rng: rand.New(rand.NewPCG(seed, 0)), server: fakeapi.New(), tally: all,
		odd: speller{seed: seed, leftOut: strings.Split(*leftOut, ",")}}
	c.Cleanup(func() {
		if err := c.server.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		c.lanes = append(c.lanes, c.newLane())
	}
	c.topology = c.lanes[0].lab.Topology()
	c.world = randomworld.Random(c.rng, c.topology)
	c.configure()
	c.publishElsewhere()
	return c
}

// publishElsewhere puts the node into another zone first. If upstream's kube-proxy
// gets its Node too early, it ignores the zone until that changes.
func (c *contest) publishElsewhere() {
	c.Helper()
	there := c.world.Node
	elsewhere := *there
	elsewhere.Zone = "elsewhere"
	c.world.Node = &elsewhere
	c.publish()
	c.world.Node = there
}

// run compares state after state.
func (c *contest) run(states, packets int) {
	c.await()
	c.publish()
	for range states {
		c.await()
		c.compare(packets)
		if c.Failed() && !*survey {
			c.report()
			return
		}
		c.world = after(c.world, randomworld.RandomEvents(c.rng, c.world, c.topology))
		c.publish()
	}
}

// present returns the world as both proxies know it.
func (c *contest) present() oracle.World {
	w := definite(c.world)
	if m, _ := mode.Find(c.mode); m.Adjust != nil {
		m.Adjust(&w.Config)
	}
	for _, a := range localByRoute {
		w.LocalRoutes = append(w.LocalRoutes, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, feature := range c.odd.leftOut {
		for i, s := range w.Services {
			plain := *s
			switch feature {
			case sessionAffinity:
				plain.Affinity = 0
			case sourceRanges:
				plain.Filtered, plain.SourceRanges = false, nil
			case oneFamilyRanges:
				if plain.Filtered && len(plain.SourceRanges) > 0 {
					plain.SourceRanges = slices.Concat(plain.SourceRanges, unused)
				}
			}
			w.Services[i] = &plain
		}
	}
	return w
}

// publish makes the API server serve the world, with the marker of a new step.
func (c *contest) publish() {
	c.Helper()
	c.step++
	objects := c.odd.objects(c.present())
	service, endpoints := markerOf(c.step)
	objects = append(objects, speller{plain: true}.service(service))
	for _, s := range endpoints {
		objects = append(objects, speller{plain: true}.slice(s))
	}
	if err := c.server.Set(objects); err != nil {
		c.Fatal(err)
	}
}

// report prints everything that the result may depend on.
func (c *contest) report() {
	c.Logf("state %d, with the configuration\n%s", c.step, c.config)
	for _, o := range c.odd.objects(c.present()) {
		text, err := json.Marshal(o)
		if err != nil {
			c.Error(err)
		}
		c.Logf("%T %s", o, text)
	}
	for _, l := range c.lanes {
		c.Logf("the end of the log of %s:\n%s\nits rules:\n%s", l.name, l.proxy.Tail(), l.rules(c))
	}
}

// unused are ranges of both families that no client has.
var unused = []netip.Prefix{netip.MustParsePrefix(closedRange), netip.MustParsePrefix("2001:db8:ffff::/64")}

// marked is the name of the Service that shows which step a proxy has reached.
var marked = model.Name{Namespace: "default", Name: "marker"}
