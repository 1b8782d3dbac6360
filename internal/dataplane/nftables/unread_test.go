//go:build linux

package nftables

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var restarts = flag.Duration("restarts", 0, "how long to try random histories with restarts")

// restarted opens a dataplane that puts off reading what it can, and has it adopt what another one left.
func (k *kernel) restarted(desired *plan.Desired) (d *Dataplane, unread bool) {
	k.t.Helper()
	d = k.dataplane()
	d.most = 0
	return d, ok(k.t, d.Reconcile(k.t.Context(), desired)).Unread
}

// compare has what was put off compared and repaired, as the engine does.
func (k *kernel) compare(d *Dataplane) (repaired bool) {
	k.t.Helper()
	good, err := d.Verify(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	if !good {
		ok(k.t, d.Repair(k.t.Context()))
	}
	if again, err := d.Verify(k.t.Context()); !again || err != nil {
		k.t.Errorf("after the comparison, verified %t, %v", again, err)
	}
	return !good
}

// holdsAll checks with a dataplane that reads everything that the kernel holds what is desired, and nothing else.
func (k *kernel) holdsAll(desired *plan.Desired) {
	k.t.Helper()
	d := k.dataplane()
	defer d.Close()
	if r := ok(k.t, d.Reconcile(k.t.Context(), desired)); r.Transactions != 0 {
		k.t.Errorf("there were %d transactions with %d elements to write", r.Transactions, r.Elements)
	}
}

// few are three Services of three endpoints each.
func few() *plan.Desired {
	d := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}, ClusterIPs: map[netip.Addr]struct{}{}}
	for i := range byte(3) {
		k := plan.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, i}), Port: 80, Protocol: model.TCP}
		d.Frontends[k] = &plan.Frontend{Key: k, Route: plan.Route{Endpoints: three(i, 1)}, Masquerade: plan.MasqueradeOffCluster}
		d.ClusterIPs[k.Addr] = struct{}{}
	}
	return d
}

// three are endpoints of the pods with these three numbers.
func three(i, from byte) (out []plan.Endpoint) {
	for j := range byte(3) {
		out = append(out, plan.Endpoint{AddrPort: netipAddrPort([4]byte{10, 244, i, from + j}, 8080)})
	}
	return out
}

// with returns a frontend with other endpoints, as what is desired and as a change.
func with(desired *plan.Desired, k plan.Key, endpoints []plan.Endpoint) (*plan.Desired, *plan.Change) {
	f, later := *desired.Frontends[k], *desired
	f.Route.Endpoints = endpoints
	later.Frontends = maps.Clone(desired.Frontends)
	later.Frontends[k] = &f
	return &later, &plan.Change{Set: []*plan.Frontend{&f}}
}

// What a restart puts off is right in the end: what changed while there was no process, and what changes before and
// during the comparison.
func TestRestartReadsMostLater(t *testing.T) {
	k, desired := newKernel(t), few()
	first, second, third := key("10.96.0.0:80", model.TCP), key("10.96.0.1:80", model.TCP), key("10.96.0.2:80", model.TCP)
	ok(t, k.dataplane().Reconcile(t.Context(), desired))

	// Nothing changed.
	d, unread := k.restarted(desired)
	if !unread || len(d.tables[0].unread) != 3 {
		t.Fatalf("unread %t, %d frontends", unread, len(d.tables[0].unread))
	}
	if k.compare(d) {
		t.Error("it repaired what is right")
	}
	if n := len(d.tables[0].unread); n > 0 {
		t.Errorf("%d frontends are still unread", n)
	}
	k.holdsAll(desired)

	// Endpoints were replaced while there was no process, in two of three.
	desired, _ = with(desired, first, three(0, 2))
	desired, _ = with(desired, second, three(1, 2))
	d, _ = k.restarted(desired)
	// One of them changes before the comparison, and one that did not.
	desired, change := with(desired, first, three(0, 3))
	ok(t, d.Apply(t.Context(), change))
	desired, change = with(desired, third, three(2, 2))
	ok(t, d.Apply(t.Context(), change))
	if !k.compare(d) {
		t.Error("it did not repair what differed")
	}
	k.holdsAll(desired)

	// A frontend is removed before the comparison, and one gets fewer endpoints.
	d, _ = k.restarted(desired)
	desired, change = with(desired, second, three(1, 2)[:1])
	ok(t, d.Apply(t.Context(), change))
	delete(desired.Frontends, first)
	ok(t, d.Apply(t.Context(), &plan.Change{Removed: []plan.Key{first}}))
	k.compare(d)
	k.holdsAll(desired)

	// Others write slots and hairpins while there is no process.
	k.nft("add element ip sluice endpoints { 10.96.0.2 . tcp . 80 . 7 : 10.244.9.9 . 1 }", "-f", "-")
	k.nft("add element ip sluice hairpin { 10.244.9.9 . 10.244.9.9 }", "-f", "-")
	k.nft("delete element ip sluice hairpin { 10.244.2.2 . 10.244.2.2 }", "-f", "-")
	d, _ = k.restarted(desired)
	desired, change = with(desired, third, three(2, 3)) // without 10.244.2.2
	ok(t, d.Apply(t.Context(), change))
	k.compare(d)
	k.holdsAll(desired)
}

// A random history with restarts leaves the same as writing its end from scratch, if what they put off is compared at
// any time, alone or during changes.
func TestRandomRestarts(t *testing.T) {
	t.Logf("seed %d (repeat with -seed)", *seed)
	k, ctx := newKernel(t), t.Context()
	put, repaired, i := 0, 0, 0
	for begin := time.Now(); i < 3 || time.Since(begin) < testkit.ExtentOr(*restarts, 0, time.Second, time.Minute); i++ {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)))
		h := dataplanetest.NewHistory(rng, Mode.Adjust)
		d := k.dataplane()
		ok(t, d.Reconcile(ctx, h.Desired()))
		for range 3 {
			d.Close()
			for range rng.IntN(40) {
				h.Next() // nobody sees it
			}
			var unread bool
			if d, unread = k.restarted(h.Desired()); unread {
				put++
			}
			for range rng.IntN(3) {
				ok(t, dataplane.ApplyWhole(ctx, d, h.Next()))
			}
			if rng.IntN(2) == 0 {
				compared := make(chan struct{})
				go func() {
					defer close(compared)
					_, _ = d.Verify(context.WithoutCancel(ctx))
				}()
				for range 1 + rng.IntN(3) {
					ok(t, dataplane.ApplyWhole(ctx, d, h.Next()))
				}
				<-compared
				ok(t, d.Repair(ctx))
			}
			if rng.IntN(4) > 0 { // otherwise the process ends before
				if k.compare(d) {
					repaired++
				}
				k.holdsAll(h.End())
			}
			if t.Failed() {
				t.Fatalf("in history %d of seed %d", i, *seed)
			}
		}
		k.compare(d)
		k.holdsAll(h.End())
	}
	t.Logf("%d histories, %d restarts put something off, %d comparisons found a difference", i, put, repaired)
	if put == 0 {
		t.Error("no restart put anything off")
	}
}

// BenchmarkRestart measures a restart with the table in place, at 5,000 Services of 50 endpoints: until changes are
// applied if everything is read first, and if most is put off; and what the comparison takes then.
func BenchmarkRestart(b *testing.B) {
	k := newKernel(b)
	desired := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}, ClusterIPs: map[netip.Addr]struct{}{}}
	for i := range 5_000 {
		at := plan.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Protocol: model.TCP}
		f := &plan.Frontend{Key: at, Masquerade: plan.MasqueradeOffCluster}
		for j := range 50 {
			n := i*50 + j
			f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: netipAddrPort([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)}, 8080)})
		}
		desired.Frontends[at], desired.ClusterIPs[at.Addr] = f, struct{}{}
	}
	ok(b, k.dataplane().Reconcile(b.Context(), desired))
	for _, most := range []int{maxElements * 1_000, maxDump} {
		b.Run(fmt.Sprintf("most=%d", most), func(b *testing.B) {
			var compared time.Duration
			for b.Loop() {
				d := k.dataplane()
				d.most = most
				ok(b, d.Reconcile(b.Context(), desired))
				b.StopTimer()
				begin := time.Now()
				if good, err := d.Verify(b.Context()); !good || err != nil {
					b.Errorf("verified %t, %v", good, err)
				}
				compared += time.Since(begin)
				d.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(compared.Milliseconds())/float64(b.N), "compared-ms/op")
		})
	}
}
