//go:build linux

package lab_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

var (
	seed    = randomworld.SeedFlag()
	states  = flag.Int("states", 0, "random states to try in the first mode; half of them in each other one")
	packets = flag.Int("packets", 32, "random packets to send in each state")
)

// Whatever objects there are, the kernel treats real packets as the oracle says,
// which implements the semantics without sharing code with plan.
func TestPacketsMatchTheOracle(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d (repeat with -seed)", *seed)
	inEachMode(t, func(t *testing.T, mode string) {
		count := testkit.ExtentOr(*states, 30, 80, 200)
		if mode != scenario.ModeNames()[0] {
			count /= 2
		}
		askOracle(t, mode, count)
	})
}

// askOracle tries that many states in a mode.
func askOracle(t *testing.T, mode string, states int) {
	l := lab.Start(t)
	d := openDataplane(t, l, mode)
	topology := l.Topology()
	topology.Annotations = true
	var tally tally
	for i := 0; i < states; {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)))
		world := randomworld.Random(rng, topology)
		if adjust := scenario.Modes[mode].Adjust; adjust != nil {
			adjust(&world.Config)
		}
		w := newWalk(t, d, world, rng)
		for range 5 {
			w.check(rng, l, topology, &tally)
			if i++; t.Failed() {
				t.Fatalf("state %d of seed %d, with these rules:\n%s", i, *seed, rulesOf(t, l, mode))
			}
			w.step(rng, randomworld.RandomEvents(rng, w.world(), topology))
		}
	}
	t.Logf("%d states: %v", states, tally)
	if tally.spared == 0 {
		t.Error("no endpoint is said not to answer: the test shows less than it should")
	}
	for _, action := range []oracle.Action{oracle.Pass, oracle.Forward, oracle.Reject, oracle.Drop} {
		if tally.actions[action] == 0 {
			t.Errorf("no packet was to %s: the test shows less than it should", action)
		}
	}
}

// rulesOf returns what a mode keeps in the kernel of node1.
func rulesOf(t *testing.T, l *lab.Lab, mode string) string {
	t.Helper()
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.Run(t.Context(), lab.Command{Args: scenario.Modes[mode].Dump})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// openDataplane opens the dataplane of a mode on node1.
func openDataplane(t *testing.T, l *lab.Lab, mode string) dataplane.Dataplane {
	t.Helper()
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	var namespace *os.File
	if err := node.Do(func() (err error) {
		namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	m := scenario.Modes[mode]
	d, err := m.Open(t.Context(), dataplane.Options{Logger: logr.Discard(), NetNS: int(namespace.Fd()), Variant: m.Variant})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// tally counts what was checked.
type tally struct {
	actions     [4]int
	masqueraded int
	spared      int // endpoints that were said not to answer
	unseen      int // where the answer takes another way back and cannot be seen
}

func (c tally) String() string {
	return fmt.Sprintf("%d passed, %d forwarded (%d masqueraded, %d without a visible answer), %d rejected, %d dropped",
		c.actions[oracle.Pass], c.actions[oracle.Forward], c.masqueraded, c.unseen, c.actions[oracle.Reject], c.actions[oracle.Drop])
}

// walk is a series of states, each programmed as a difference to the one before.
type walk struct {
	t         *testing.T
	dataplane dataplane.Dataplane
	config    plan.Config
	state     *model.State
	planner   *plan.Planner
}

func newWalk(t *testing.T, d dataplane.Dataplane, world oracle.World, rng *rand.Rand) *walk {
	w := &walk{t: t, dataplane: d, config: world.Config, state: model.NewState(), planner: plan.New(world.Config)}
	var dirty model.Dirty
	w.state.Apply(&dirty, world.Events()...)
	w.state.Apply(&dirty, w.ejections(rng)...)
	w.planner.Update(w.state, &dirty)
	if r := d.Reconcile(context.Background(), w.planner.Desired()); r.Err != nil || len(r.Failed) > 0 {
		t.Fatal(r.Err, r.Failed)
	}
	return w
}

func (w *walk) world() oracle.World {
	return oracle.FromState(w.config, w.state)
}

func (w *walk) step(rng *rand.Rand, events []model.Event) {
	// The lab's node keeps the addresses it has.
	events = slices.DeleteFunc(events, func(e model.Event) bool { _, host := e.(model.SetHostIPs); return host })
	var dirty model.Dirty
	w.state.Apply(&dirty, events...)
	w.state.Apply(&dirty, w.ejections(rng)...)
	if r := dataplane.ApplyWhole(context.Background(), w.dataplane, w.planner.Update(w.state, &dirty)); r.Err != nil || len(r.Failed) > 0 {
		w.t.Fatal(r.Err, r.Failed)
	}
}

// ejections has some Services leave out endpoints that do not answer, and says of some that they do not.
func (w *walk) ejections(rng *rand.Rand) (events []model.Event) {
	for _, name := range slices.SortedFunc(maps.Keys(w.state.Services()), model.Name.Compare) {
		if rng.IntN(3) > 0 {
			continue
		}
		svc, yes := *w.state.Service(name), true
		svc.Eject = &yes
		list := map[dataplane.Target]model.Ejection{}
		for _, s := range w.state.Slices(name) {
			for _, p := range s.Ports {
				for _, e := range s.Endpoints {
					at := dataplane.Target{AddrPort: netip.AddrPortFrom(e.Addr, p.Port), Protocol: p.Protocol}
					if rng.IntN(3) == 0 {
						list[at] = model.Ejection{Endpoint: at.AddrPort, Protocol: at.Protocol, OnTrial: rng.IntN(8) == 0}
					}
				}
			}
		}
		ejected := model.SetEjected{Service: name}
		for _, at := range slices.SortedFunc(maps.Keys(list), dataplane.Target.Compare) {
			ejected.Endpoints = append(ejected.Endpoints, list[at])
		}
		events = append(events, model.SetService{Service: &svc}, ejected)
	}
	return events
}

// leftOut reports whether an endpoint of a pool must not be chosen because it does not answer: unless more
// than half of the pool do not, or the packet is for a range, whose ports nobody judges.
func (w *walk) leftOut(chosen netip.AddrPort, p oracle.Packet, v oracle.Verdict) bool {
	svc := w.state.Service(v.Service)
	if !w.config.CanEject || svc == nil || svc.Eject == nil || !*svc.Eject || isRanged(svc, p) {
		return false
	}
	failing, out := 0, false
	for _, e := range w.state.Ejected(v.Service) {
		if e.Protocol == p.Protocol && slices.Contains(v.Endpoints, e.Endpoint) {
			failing++
			out = out || e.Endpoint == chosen && !e.OnTrial
		}
	}
	return out && 2*failing <= len(v.Endpoints)
}

// isRanged reports whether a packet for a Service is for one of its ranges. A single port outranks them.
func isRanged(svc *model.Service, p oracle.Packet) (ranged bool) {
	for _, port := range svc.Ports {
		if port.Protocol != p.Protocol {
			continue
		}
		if port.Port == p.Port || port.NodePort == p.Port {
			return false
		}
		ranged = ranged || slices.ContainsFunc(port.Ranges, func(r model.PortRange) bool { return r.Contains(p.Port) })
	}
	return ranged
}

// check sends packets and compares their outcomes with the verdicts.
func (w *walk) check(rng *rand.Rand, l *lab.Lab, topology randomworld.Topology, c *tally) {
	world := w.world()
	var flows []lab.Flow
	var verdicts []oracle.Verdict
	var sent []oracle.Packet
	for range *packets {
		p := randomworld.RandomPacket(rng, world, topology)
		from := l.Owner(p.Source)
		p.Source = sourceOf(from, p.Destination)
		v := oracle.Decide(world, p)
		f := lab.Flow{From: from.Name, Protocol: protocolOf(p.Protocol), To: netip.AddrPortFrom(p.Destination, p.Port)}
		if v.Action == oracle.Drop || v.Action == oracle.Pass && l.Owner(p.Destination) == nil {
			f.Timeout = lab.ShortTimeout
		} else if v.Action == oracle.Forward && slices.ContainsFunc(v.Endpoints, func(e netip.AddrPort) bool { return astray(l, from, e.Addr(), v) }) {
			f.Timeout = lab.ShortTimeout
		}
		flows, verdicts, sent = append(flows, f), append(verdicts, v), append(sent, p)
	}
	for i, o := range l.Probe(context.Background(), flows) {
		err := w.compare(l, flows[i], sent[i], verdicts[i], o, c)
		if svc := w.state.Service(verdicts[i].Service); err != nil && o.Kind == lab.Answered && svc != nil && svc.Affinity > 0 {
			// Clients of an endpoint that left are forgotten beside the changes, within a second.
			err = testkit.Poll(time.Second, func() error {
				o = l.Connect(context.Background(), flows[i])
				return w.compare(l, flows[i], sent[i], verdicts[i], o, c)
			})
		}
		if err != nil {
			w.t.Errorf("%v: %v, but %v\nthe oracle: %v %v masqueraded %v\nbecause: %s\nconfig %+v", flows[i], o, err,
				verdicts[i].Action, verdicts[i].Endpoints, verdicts[i].MasqueradedTo, verdicts[i].Why, w.config)
		}
	}
}

// compare compares one outcome with the verdict.
func (w *walk) compare(l *lab.Lab, f lab.Flow, p oracle.Packet, v oracle.Verdict, o lab.Outcome, c *tally) error {
	c.actions[v.Action]++
	switch v.Action {
	case oracle.Reject:
		if o.Kind != lab.Refused {
			return fmt.Errorf("it should have been refused")
		}
	case oracle.Drop:
		if o.Kind != lab.Dropped {
			return fmt.Errorf("it should have been dropped")
		}
	case oracle.Pass:
		return comparePassed(l, f, o)
	case oracle.Forward:
		return w.compareForwarded(l, f, p, v, o, c)
	}
	return nil
}

// comparePassed: a packet for no Service arrives where it was sent, or leaves for
// the world.
func comparePassed(l *lab.Lab, f lab.Flow, o lab.Outcome) error {
	owner := l.Owner(f.To.Addr())
	switch {
	case owner == nil && o.Kind != lab.Passed:
		return fmt.Errorf("it should have gone on untouched")
	case owner != nil && o.Kind == lab.Answered && o.By != owner.Name:
		return fmt.Errorf("it should have reached %s itself", owner.Name)
	case owner != nil && o.Kind != lab.Answered && o.Kind != lab.Refused:
		return fmt.Errorf("%s should have answered or refused", owner.Name)
	}
	return nil
}

func (w *walk) compareForwarded(l *lab.Lab, f lab.Flow, p oracle.Packet, v oracle.Verdict, o lab.Outcome, c *tally) error {
	from, _ := l.Host(f.From)
	if o.Kind != lab.Answered {
		if slices.ContainsFunc(v.Endpoints, func(e netip.AddrPort) bool { return astray(l, from, e.Addr(), v) }) {
			c.unseen++
			return nil
		}
		return fmt.Errorf("it should have been answered")
	}
	by, err := l.Host(o.By)
	if err != nil {
		return err
	}
	chosen := netip.AddrPortFrom(addrOf(by, f.To.Addr()), o.Port)
	if !slices.Contains(v.Endpoints, chosen) {
		return fmt.Errorf("%v should not have been chosen", chosen)
	}
	if w.leftOut(chosen, p, v) {
		return fmt.Errorf("%v should have been left out", chosen)
	}
	c.spared += len(w.state.Ejected(v.Service))
	node, _ := l.Host("node1")
	seen := o.Source.Addr()
	switch {
	case from == node: // whichever of its addresses the kernel chose
		if !node.Owns(seen) {
			return fmt.Errorf("an address of the node should have been seen")
		}
	case v.MasqueradedTo[chosen] && by != node: // nothing leaves the node to its own sockets
		c.masqueraded++
		if !node.Owns(seen) {
			return fmt.Errorf("the node's address should have been seen")
		}
	case seen != p.Source && !(node.Owns(seen) && w.mayMasquerade(by, chosen.Addr())):
		return fmt.Errorf("the client's address should have been seen")
	}
	return nil
}

// mayMasquerade reports whether an endpoint may see the node instead of a client: in
// userspace mode, one on another node that is not known to be a pod.
func (w *walk) mayMasquerade(by *lab.Host, endpoint netip.Addr) bool {
	pod := func(p netip.Prefix) bool { return p.Contains(endpoint) }
	return w.config.ProxyConnects && by.Node != "node1" && !slices.ContainsFunc(w.config.ClusterCIDRs, pod)
}

// astray reports whether the answer of an endpoint does not come back through
// node1, so that the client does not recognise it.
func astray(l *lab.Lab, from *lab.Host, endpoint netip.Addr, v oracle.Verdict) bool {
	to := l.Owner(endpoint)
	if to.Node == "node1" || from.Name == "node1" {
		return false
	}
	for e, masqueraded := range v.MasqueradedTo {
		if e.Addr() == endpoint && masqueraded {
			return false
		}
	}
	return from.Node != "node1"
}

// sourceOf returns the source address that the kernel of a host chooses for a
// destination: for one of its own addresses, that address.
func sourceOf(h *lab.Host, destination netip.Addr) netip.Addr {
	if h.Owns(destination) {
		return destination
	}
	return addrOf(h, destination)
}

func addrOf(h *lab.Host, like netip.Addr) netip.Addr {
	for _, a := range h.Addrs {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

func protocolOf(p model.Protocol) lab.Protocol {
	switch p {
	case model.TCP:
		return lab.TCP
	case model.UDP:
		return lab.UDP
	}
	return lab.SCTP
}
