//go:build linux

package nftables

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// maglevFrontends are frontends of one service port, at several addresses and a node port, all with
// the same pool, but for the last, whose clients outside have a pool of their own.
func maglevFrontends(endpoints int) (all []*plan.Frontend) {
	var pool []plan.Endpoint
	for i := range endpoints {
		pool = append(pool, dataplanetest.Endpoints(fmt.Sprintf("10.244.0.%d:80", 1+i))...)
	}
	route := plan.Route{Endpoints: pool, Algorithm: model.Maglev}
	for _, at := range []string{"10.96.0.1:80", "198.51.100.1:80", "198.51.100.2:80", "0.0.0.0:30080"} {
		all = append(all, &plan.Frontend{Key: key(at, model.TCP), Service: model.Name{Namespace: "a", Name: "web"}, Port: "p", Route: route})
	}
	local := route
	local.Endpoints, local.Local = pool[:1], true
	all[3].Outside = &local
	return all
}

// elementsIn counts the elements of a set.
func (k *kernel) elementsIn(set string) (n int) {
	k.t.Helper()
	c, err := nft.Dial(k.ns.FD(), nft.SendBuffer)
	if err != nil {
		k.t.Fatal(err)
	}
	defer c.Close()
	err = c.Elements(context.Background(), nft.Table{Family: nft.IP, Name: tableNames[0]}, set, func(*nft.Element) error {
		n++
		return nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

// TestFrontendsShareAPool follows a pool from its first frontend to its last: it is in the kernel once
// for each kind of clients, changes once for all frontends, and goes with the last of them. At each
// step the kernel is as after a start with the same.
func TestFrontendsShareAPool(t *testing.T) {
	testkit.NotInGuest(t, "lookup tables are very many elements")
	ctx := t.Context()
	k := newKernel(t)
	d := k.dataplane()
	desired := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}}
	ok(t, d.Reconcile(ctx, desired))
	step := func(name string, tables int, c *plan.Change, limit int) {
		t.Helper()
		for _, f := range c.Set {
			desired.Frontends[f.Key] = f
		}
		for _, gone := range c.Removed {
			delete(desired.Frontends, gone)
		}
		if r := ok(t, dataplane.ApplyWhole(ctx, d, c)); r.Elements > limit {
			t.Errorf("%s: %d elements were written, want at most %d", name, r.Elements, limit)
		}
		if got := k.elementsIn(pools); got != tables*plan.MaglevSize {
			t.Errorf("%s: %d elements, want %d tables", name, got, tables)
		}
		if same, err := d.Verify(ctx); err != nil || !same {
			t.Errorf("%s: verified %t, %v", name, same, err)
		}
		other := k.dataplane()
		if r := ok(t, other.Reconcile(ctx, desired)); r.Elements > 0 {
			t.Errorf("%s: a new process writes %d elements", name, r.Elements)
		}
		ok(t, d.Reconcile(ctx, desired))
	}
	few, more := maglevFrontends(2), maglevFrontends(3)
	step("the first", 1, &plan.Change{Set: few[:1]}, plan.MaglevSize+10)
	step("two more", 1, &plan.Change{Set: few[1:3]}, 10)
	step("one with clients outside", 2, &plan.Change{Set: few[3:]}, plan.MaglevSize+10)
	step("another endpoint", 2, &plan.Change{Set: more}, plan.MaglevSize) // a third of them
	step("two gone", 2, &plan.Change{Removed: []plan.Key{more[0].Key, more[1].Key}}, 10)
	step("no clients outside", 1, &plan.Change{Removed: []plan.Key{more[3].Key}}, plan.MaglevSize+10)
	step("the last gone", 0, &plan.Change{Removed: []plan.Key{more[2].Key}}, plan.MaglevSize+10)
}

// TestPoolIsWrittenInParts: no part is large, frontends of a new pool are not there before all of it
// is, and those of an old one have endpoints all the time.
func TestPoolIsWrittenInParts(t *testing.T) {
	testkit.NotInGuest(t, "lookup tables are very many elements")
	ctx := t.Context()
	k := newKernel(t)
	d := k.dataplane()
	ok(t, d.Reconcile(ctx, &plan.Desired{Settings: settings()}))
	for i, all := range [][]*plan.Frontend{maglevFrontends(2)[:2], maglevFrontends(3)[:2]} {
		parts := 0
		for r := (dataplane.Result{Left: map[plan.Key]struct{}{{}: {}}}); len(r.Left) > 0; parts++ {
			if r = ok(t, d.Apply(ctx, &plan.Change{Set: all})); r.Elements > 2*poolPart+10 {
				t.Errorf("%d elements were written at a time", r.Elements)
			}
			frontends, slots := k.elementsIn(services), k.elementsIn(pools)
			switch {
			case len(r.Left) != 0 && len(r.Left) != 2:
				t.Errorf("left: %v", r.Left)
			case i == 0 && (frontends == 2) != (len(r.Left) == 0):
				t.Errorf("%d frontends while %d are left", frontends, len(r.Left))
			case i == 1 && slots != plan.MaglevSize:
				t.Errorf("the pool has %d slots", slots)
			}
			if same, err := d.Verify(ctx); err != nil || !same {
				t.Errorf("verified %t, %v", same, err)
			}
		}
		if parts < 3 {
			t.Errorf("there were %d parts", parts)
		}
	}
}

// TestPoolOfNoFrontend: the frontends of a pool are removed before it is complete, and so is the pool.
func TestPoolOfNoFrontend(t *testing.T) {
	testkit.NotInGuest(t, "lookup tables are very many elements")
	ctx := t.Context()
	k := newKernel(t)
	d := k.dataplane()
	ok(t, d.Reconcile(ctx, &plan.Desired{Settings: settings()}))
	all := maglevFrontends(2)[:2]
	if r := ok(t, d.Apply(ctx, &plan.Change{Set: all})); len(r.Left) != 2 {
		t.Fatalf("left: %v", r.Left)
	}
	ok(t, d.Apply(ctx, &plan.Change{Removed: []plan.Key{all[0].Key}}))
	if n := k.elementsIn(pools); n == 0 {
		t.Error("the pool is gone while a frontend waits for it")
	}
	ok(t, d.Apply(ctx, &plan.Change{Removed: []plan.Key{all[1].Key}}))
	if n := k.elementsIn(pools); n != 0 {
		t.Errorf("%d elements of the pool are left", n)
	}
	if same, err := d.Verify(ctx); err != nil || !same {
		t.Errorf("verified %t, %v", same, err)
	}
}

// TestRestartWithOtherPools: a new process finds so many pools that it asks for those that it expects
// instead of reading all, and one that it does not expect. What it read of the frontends' own
// endpoints before stands.
func TestRestartWithOtherPools(t *testing.T) {
	testkit.NotInGuest(t, "lookup tables are very many elements")
	ctx := t.Context()
	k := newKernel(t)
	plain := &plan.Frontend{Key: key("10.96.1.1:80", model.TCP), Service: model.Name{Namespace: "a", Name: "plain"},
		Route: plan.Route{Endpoints: dataplanetest.Endpoints("10.244.0.1:80", "10.244.0.2:80")}}
	desired := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{plain.Key: plain}}
	var last plan.Key
	for i := range maxDump/plan.MaglevSize + 2 {
		f := *maglevFrontends(2)[0]
		f.Key, f.Service.Name = key(fmt.Sprintf("10.96.0.%d:80", 1+i), model.TCP), fmt.Sprint("web", i)
		desired.Frontends[f.Key] = &f
		last = f.Key
	}
	ok(t, k.dataplane().Reconcile(ctx, desired))
	delete(desired.Frontends, last)
	delete(desired.Frontends, plain.Key)
	if r := ok(t, k.dataplane().Reconcile(ctx, desired)); r.Elements > plan.MaglevSize+10 {
		t.Errorf("%d elements were written, want one pool less", r.Elements)
	}
	if n := k.elementsIn(endpoints); n != 0 {
		t.Errorf("%d endpoints of a frontend are left that is gone", n)
	}
	if r := ok(t, k.dataplane().Reconcile(ctx, desired)); r.Elements > 0 {
		t.Errorf("another process writes %d elements", r.Elements)
	}
}

// TestDamagedPoolIsRepaired removes elements of a pool behind our back.
func TestDamagedPoolIsRepaired(t *testing.T) {
	testkit.NotInGuest(t, "lookup tables are very many elements")
	ctx := t.Context()
	k := newKernel(t)
	d := k.dataplane()
	all := maglevFrontends(2)
	desired := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{all[0].Key: all[0]}}
	ok(t, d.Reconcile(ctx, desired))
	words := poolOf(all[0], &all[0].Route).words()
	k.nft("", "delete", "element", "ip", tableNames[0], pools, fmt.Sprintf("{ %d . %d . 7 }", words[0], words[1]))
	<-d.Disturbed()
	if r := ok(t, d.Repair(ctx)); r.Elements == 0 {
		t.Error("nothing was repaired")
	}
	if got := k.elementsIn(pools); got != plan.MaglevSize {
		t.Errorf("%d elements, want %d", got, plan.MaglevSize)
	}
}

// TestRefusedPoolFailsItsFrontends: the kernel refuses the elements of a pool. Its frontends are
// reported and tried again, and the pool itself is nothing that the engine knows of.
func TestRefusedPoolFailsItsFrontends(t *testing.T) {
	testkit.NotInGuest(t, "lookup tables are very many elements")
	ctx := t.Context()
	d := newKernel(t).dataplane()
	ok(t, d.Reconcile(ctx, &plan.Desired{Settings: settings()}))
	commit := d.commit
	d.commit = func(ctx context.Context, b *nft.Batch) error {
		refused := &nft.Refused{}
		if b.Elements() > 100 {
			refused.Messages = append(refused.Messages, nft.Refusal{Owner: 1, Err: unix.ENOSPC})
			return refused
		}
		return commit(ctx, b)
	}
	all := maglevFrontends(2)[:3]
	r := dataplane.ApplyWhole(ctx, d, &plan.Change{Set: all})
	if r.Err != nil || len(r.Failed) != len(all) {
		t.Fatalf("error %v, failed %v, want the %d frontends", r.Err, r.Failed, len(all))
	}
	for _, f := range all {
		if err := r.Failed[f.Key]; err == nil || !strings.Contains(err.Error(), "the endpoints of "+f.Key.String()) {
			t.Errorf("%s failed with %v", f.Key, err)
		}
	}
	d.commit = commit
	ok(t, dataplane.ApplyWhole(ctx, d, &plan.Change{Set: all}))
	if same, err := d.Verify(ctx); err != nil || !same {
		t.Errorf("verified %t, %v", same, err)
	}
}
