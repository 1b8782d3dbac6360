package dataplanetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

func (s *suite) testReconcile(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.reconciled(desired)
	before := n.dump()
	if missing := unmentioned(before, desired); len(missing) > 0 && n.programs() {
		t.Errorf("%v are not in\n%s", missing, before)
	}
	if r := OK(t, d.Reconcile(t.Context(), desired)); r.Transactions != 0 {
		t.Errorf("a second Reconcile wrote %d transactions with %d elements", r.Transactions, r.Elements)
	}
	select {
	case <-d.Disturbed():
		t.Error("its own changes disturb it")
	default:
	}
	n.holds(d, desired)
	n.same(before)
}

// A change is written as what it says, and needs to know what it changes.
func (s *suite) testApply(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.open()
	if r := d.Apply(t.Context(), &plan.Change{}); r.Err == nil {
		t.Error("Apply before Reconcile is not an error")
	}
	all := OK(t, d.Reconcile(t.Context(), desired))
	f := *desired.Frontends[Key("10.96.0.1:80", model.TCP)]
	f.Route.Endpoints = Endpoints("10.244.0.1:8080", "10.244.0.9:8080")
	gone := Key("[fd00:10:96::1]:80", model.TCP)
	r := OK(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{&f}, Removed: []plan.Key{gone}}))
	if r.Elements > all.Elements/2 {
		t.Errorf("Apply wrote %d elements for two of %d frontends, and Reconcile %d for all", r.Elements, len(desired.Frontends), all.Elements)
	}
	desired.Frontends[f.Key] = &f
	delete(desired.Frontends, gone)
	n.holds(d, desired)
}

// The contents of the kernel depend on the current objects, and not on their
// history: a random history of changes, each written as a difference, leaves the
// same as writing the last state into an empty kernel.
func (s *suite) testHistory(t *testing.T) {
	t.Logf("seed %d (repeat with -seed)", s.Seed)
	changing, empty := s.newNode(t), s.newNode(t)
	incremental, scratch := changing.open(), empty.open()
	changes, i := 0, 0
	for start := time.Now(); i < 2 || s.programs() && time.Since(start) < s.Histories; i++ {
		h := NewHistory(rand.New(rand.NewPCG(s.Seed, uint64(i))), s.mode.Adjust)
		OK(t, incremental.Reconcile(t.Context(), h.planner.Desired()))
		for range 1 + h.rng.IntN(6) {
			OK(t, dataplane.ApplyWhole(t.Context(), incremental, h.Next()))
			changes++
		}
		empty.remove(nil)
		OK(t, scratch.Reconcile(t.Context(), h.End()))
		changing.holds(incremental, h.End())
		if i%5 == 0 { // it takes longer than all else
			// A large map that the kernel still rehashes is listed with some elements twice, and without others.
			testkit.Eventually(t, func() error {
				if diff := cmp.Diff(words(empty.dump()), words(changing.dump())); diff != "" {
					return fmt.Errorf("from scratch (-) and by increments (+) differ:\n%s", diff)
				}
				return nil
			})
		}
		if t.Failed() {
			t.Fatalf("in history %d of seed %d", i, s.Seed)
		}
	}
	t.Logf("%d histories, %d changes", i, changes)
}

// A dataplane adopts what another one left, and writes the difference only.
func (s *suite) testRestart(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	first := n.open()
	all := OK(t, first.Reconcile(t.Context(), desired))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	f := *desired.Frontends[Key("10.96.0.1:80", model.TCP)]
	f.Route.Endpoints = Endpoints("10.244.0.1:8080", "10.244.0.9:8080")
	desired.Frontends[f.Key] = &f
	d := n.open()
	r := OK(t, d.Reconcile(t.Context(), desired))
	if n.programs() && (r.Transactions == 0 || r.Elements > all.Elements/2) {
		t.Errorf("one of %d frontends took %d transactions with %d elements, and all of them %d elements",
			len(desired.Frontends), r.Transactions, r.Elements, all.Elements)
	}
	n.holds(d, desired)
}

func (s *suite) testClose(t *testing.T) {
	n := s.newNode(t)
	d := n.reconciled(s.variety())
	before := n.dump()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	n.same(before)
}

// Another process removes everything. That is noticed, and undone as the engine
// does: by Repair, or else by Reconcile.
func (s *suite) testForeignChange(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.reconciled(desired)
	n.remove(nil)
	testkit.Eventually(t, func() error {
		select {
		case <-d.Disturbed():
			return nil
		default:
		}
		if good, err := d.Verify(t.Context()); err != nil || !good {
			return err
		}
		return errors.New("it is not noticed that everything was removed")
	})
	if r := d.Repair(t.Context()); r.Err != nil {
		OK(t, d.Reconcile(t.Context(), desired))
	}
	if missing := unmentioned(n.dump(), desired); len(missing) > 0 {
		t.Errorf("%v are not restored", missing)
	}
	n.holds(d, desired)
}

// impossible is a frontend that no kernel takes: one of its sources has the other
// family.
func impossible(at string) *plan.Frontend {
	return &plan.Frontend{Key: Key(at, model.TCP), Service: name("bad"), Kind: plan.LoadBalancerIP, Filtered: true,
		Sources: testkit.Prefixes("10.0.0.0/8", "fd00::/8"), Route: plan.Route{Endpoints: Endpoints("10.244.0.66:80")}}
}

// A frontend that the kernel refuses fails alone.
func (s *suite) testRefused(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.open()
	check := func(r dataplane.Result, bad plan.Key) {
		t.Helper()
		var want []plan.Key
		if n.programs() {
			want = append(want, bad)
		}
		if keys := slices.Collect(maps.Keys(r.Failed)); r.Err != nil || !slices.Equal(keys, want) {
			t.Fatalf("failed: %v, %v; want %v", r.Err, r.Failed, want)
		}
	}
	first, second := impossible("198.51.100.8:80"), impossible("198.51.100.9:80")
	desired.Frontends[first.Key] = first
	check(d.Reconcile(t.Context(), desired), first.Key)
	good := *desired.Frontends[Key("10.96.0.1:80", model.TCP)]
	good.Route.Endpoints = Endpoints("10.244.0.1:8080", "10.244.99.4:8080")
	check(d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{second, &good}}), second.Key)
	if n.programs() && !strings.Contains(n.dump(), "10.244.99.4") {
		t.Error("the good frontend of the same change was not programmed")
	}
	desired.Frontends[good.Key] = &good
	var change plan.Change
	for _, bad := range []*plan.Frontend{first, second} {
		better := *bad
		better.Sources = better.Sources[:1]
		desired.Frontends[bad.Key] = &better
		change.Set = append(change.Set, &better)
	}
	OK(t, d.Apply(t.Context(), &change))
	n.holds(d, desired)
}

// A family that the node no longer serves is removed, and the other one stays.
func (s *suite) testUnservedFamily(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.reconciled(desired)
	desired.Settings.NoIPv6 = true
	maps.DeleteFunc(desired.Frontends, func(k plan.Key, _ *plan.Frontend) bool { return k.Family() == model.IPv6 })
	maps.DeleteFunc(desired.ClusterIPs, func(ip netip.Addr, _ struct{}) bool { return ip.Is6() })
	OK(t, d.Reconcile(t.Context(), desired))
	dump := n.dump()
	if missing := unmentioned(dump, desired); len(missing) > 0 && n.programs() {
		t.Errorf("%v are gone as well", missing)
	}
	for k := range s.variety().Frontends {
		if k.Family() == model.IPv6 && !k.NodePort() && mentions(dump, k) {
			t.Errorf("%s is still in\n%s", k, dump)
		}
	}
	n.holds(d, desired)
}

// Remove leaves what is running, and otherwise nothing.
func (s *suite) testRemove(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.open()
	first := OK(t, d.Reconcile(t.Context(), desired))
	before := n.dump()
	n.remove(d)
	n.same(before)
	for range 2 { // also if there is nothing to remove
		n.remove(nil)
		dump := n.dump()
		for k := range desired.Frontends {
			if mentions(dump, k) {
				t.Errorf("%s is still in\n%s", k, dump)
			}
		}
	}
	if r := OK(t, n.open().Reconcile(t.Context(), desired)); r.Elements != first.Elements {
		t.Errorf("after Remove, Reconcile wrote %d elements, and %d into the empty kernel", r.Elements, first.Elements)
	}
}
