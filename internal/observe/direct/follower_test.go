//go:build linux

package direct

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// fake is a dataplane and a sink.
type fake struct {
	clock   *clocktesting.FakeClock
	applied *dataplane.Direct
	calls   int
	answers dataplane.Proof // of each kind, whether it comes; by when
	err     error
	states  map[netip.Addr]model.PathState
}

func (f *fake) Direct(_ context.Context, d *dataplane.Direct) error {
	f.calls++
	if f.err == nil {
		f.applied = d
	}
	return f.err
}

func (f *fake) Proofs(_ context.Context, of []netip.Addr) (map[netip.Addr]dataplane.Proof, error) {
	out := map[netip.Addr]dataplane.Proof{}
	for _, a := range of {
		out[a] = f.answers
	}
	return out, nil
}

func (f *fake) Handed(context.Context) (dataplane.Handed, error) { return dataplane.Handed{}, nil }

func (f *fake) Synced() {}

func (f *fake) Update(events ...model.Event) {
	for _, e := range events {
		for _, p := range e.(model.SetPaths).Paths {
			f.states[p.Addr] = p.State
		}
	}
}

// TestFollower has a node on the link, which answers probes or does not, one behind a router, and one that
// does not answer on the link.
func TestFollower(t *testing.T) {
	ns := netnstest.Enter(t)
	ns.Run(t, "", "sh", "-c", `ip link set lo up; ip link add one type veth peer wire; ip link set one up; ip link set wire up; ip addr add 192.0.2.11/24 dev one
ip neigh add 192.0.2.12 lladdr 02:00:00:00:00:12 dev one nud permanent; ip route add 203.0.113.0/24 via 192.0.2.1`)
	near, far, dead := netip.MustParseAddr("192.0.2.12"), netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("192.0.2.13")
	k := &fake{clock: clocktesting.NewFakeClock(time.Now()), states: map[netip.Addr]model.PathState{}}
	f := New(Options{Logger: logr.Discard(), Clock: k.clock, Dataplane: k, Sink: k})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- ns.Do(func() error { return f.neighbours.Run(ctx) }) }()
	defer func() { cancel(); <-done; f.prober.close() }()
	<-f.neighbours.Ready

	node := func(name string, ip netip.Addr) plan.DirectNode {
		return plan.DirectNode{Name: name, IPs: []netip.Addr{ip}, IPv4: model.Path{Addr: ip}}
	}
	self := node("n1", netip.MustParseAddr("192.0.2.11"))
	self.Self = true
	settings := plan.Settings{DirectReturn: &plan.DirectReturn{Nodes: []plan.DirectNode{self, node("n2", near), node("n3", far), node("n4", dead)}}}
	commit := func(c *plan.Change, waiting int) {
		f.Committed(&engine.Commit{Change: c, Waiting: waiting, Desired: &plan.Desired{Settings: settings}})
	}
	steps := func(seconds int) {
		for range seconds * int(time.Second/period) {
			f.step(t.Context())
			k.clock.Step(period)
		}
	}
	usable := func(want ...string) {
		t.Helper()
		var got []string
		for _, p := range k.applied.Peers {
			if p.IPv4.Usable {
				got = append(got, p.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("packets are handed to %v, want %v", got, want)
		}
	}
	state := func(of netip.Addr, want model.PathState) {
		t.Helper()
		if got := k.states[of]; got != want {
			t.Errorf("the way to %v is %v, want %v", of, got, want)
		}
	}

	commit(&plan.Change{Settings: &settings}, 5)
	steps(1)
	if k.calls > 0 {
		t.Error("it began before all was there")
	}
	commit(&plan.Change{}, 0)
	steps(10)
	if d := k.applied; d == nil || d.Device != "one" || d.Node != "n1" || d.IPv4 != self.IPv4.Addr || d.IPv6.IsValid() || len(d.Peers) != 3 {
		t.Fatalf("the dataplane got %+v", d)
	}
	usable()
	state(near, model.PathSilent)
	state(far, model.PathOffLink)
	state(dead, model.PathNoMAC)

	k.answers.Plain = k.clock.Now().Add(time.Hour)
	steps(70)
	usable()
	state(near, model.PathFiltered)
	k.answers.Foreign = k.answers.Plain
	steps(70)
	usable("n2")
	state(near, model.PathProven)

	// A kernel that notices that it is gone is believed at once.
	ns.Run(t, "", "ip", "neigh", "replace", near.String(), "dev", "one", "nud", "failed")
	testkit.Eventually(t, func() error {
		if mac := f.neighbours.MAC(k.applied.Index, near); mac != (dataplane.MAC{}) {
			return fmt.Errorf("it is still %v", mac)
		}
		return nil
	})
	f.step(t.Context())
	usable()
	state(near, model.PathNoMAC)

	// Frontends are told until they are written.
	web := &plan.Frontend{Key: plan.Key{Addr: netip.MustParseAddr("198.18.0.1"), Port: 80, Protocol: model.TCP}, Direct: &plan.Direct{}}
	k.err = errors.New("refused")
	commit(&plan.Change{Set: []*plan.Frontend{web}}, 0)
	steps(1)
	if f.Err() == nil || len(k.applied.Frontends) > 0 {
		t.Errorf("after an error there are %v, and it is %v", k.applied.Frontends, f.Err())
	}
	k.err = nil
	steps(120)
	if f.Err() != nil || k.applied.Frontends[web.Key] != web {
		t.Errorf("there are %v, and the error is %v", k.applied.Frontends, f.Err())
	}
	commit(&plan.Change{Removed: []plan.Key{web.Key}, Before: map[plan.Key]*plan.Frontend{web.Key: web}}, 0)
	k.applied.Changed = nil
	steps(1)
	if _, changed := k.applied.Changed[web.Key]; !changed || len(k.applied.Frontends) > 0 {
		t.Errorf("after its removal there are %v, changed %v", k.applied.Frontends, k.applied.Changed)
	}

	settings.DirectReturn = nil
	commit(&plan.Change{Settings: &settings}, 0)
	steps(1)
	if k.applied != nil {
		t.Error("it is not switched off")
	}
}
