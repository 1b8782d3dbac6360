//go:build linux

package nftables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// uncounted opens a dataplane without counters.
func (k *kernel) uncounted() *Dataplane {
	k.t.Helper()
	d, err := New(Options{Logger: logr.Discard(), NetNS: k.ns.FD(), Uncounted: true})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { d.Close() })
	return d
}

// Without counters the table is the same but for them, after changes too.
func TestUncounted(t *testing.T) {
	k, desired := newKernel(t), variety()
	d := k.uncounted()
	ok(t, d.Reconcile(t.Context(), desired))
	listed := k.list()
	if strings.Contains(listed, "counter") {
		t.Errorf("there are counters in\n%s", listed)
	}
	var b strings.Builder
	o := dataplane.RenderOptions{Families: model.Families[:], ModeSettings: dataplane.ModeSettings{Uncounted: true}}
	if err := Render(&b, desired, o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(blocks(listed), blocks(b.String())); diff != "" {
		t.Errorf("what nft lists (-) is not what is rendered (+):\n%s", diff)
	}
	counted := strings.NewReplacer(" counter packets 0 bytes 0", "", "\t\tcounter\n", "").Replace(rendered(t, desired, model.Families[:]...))
	if diff := cmp.Diff(blocks(counted), blocks(b.String())); diff != "" {
		t.Errorf("with counters (-) and without (+) more differs than these:\n%s", diff)
	}
	at := key("10.96.0.1:80", model.TCP)
	more := *desired.Frontends[at]
	more.Route.Endpoints = pool("10.244.0.1:8080", "10.244.0.2:8080", "10.244.0.3:8080")
	ok(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{&more}}))
	desired.Frontends[at] = &more
	if r := ok(t, k.uncounted().Reconcile(t.Context(), desired)); r.Transactions != 0 {
		t.Errorf("a restart wrote %d transactions", r.Transactions)
	}
	if good, err := d.Verify(t.Context()); !good || err != nil {
		t.Errorf("verified %t, %v", good, err)
	}
	if _, err := d.Traffic(t.Context(), func(plan.Key, dataplane.Traffic) {}); err == nil {
		t.Error("traffic is reported, which nobody counts")
	}
}

// When counters are switched on or off, a new table takes the place of the old one, with the endpoints that clients
// are remembered for.
func TestClientsKeepTheirEndpointWhenTheTableIsReplaced(t *testing.T) {
	k, desired := newKernel(t), stickyServices(2)
	ok(t, k.dataplane().Reconcile(t.Context(), desired))
	var maps []string
	for _, f := range desired.Frontends {
		id := affinityOf(f)
		maps = append(maps, id.clientMap(false).name())
		for client, endpoint := range map[string]string{"192.0.2.1": "10.244.0.1", "192.0.2.2": "10.244.0.9"} {
			k.nft(fmt.Sprintf("add element ip sluice %s { %s . %d . %d timeout 1h : %s . 8080 }",
				id.clientMap(false).name(), client, id.words()[0], id.words()[1], endpoint), "-f", "-")
		}
	}
	for i, open := range []func() *Dataplane{k.uncounted, k.dataplane, k.uncounted} {
		d := open()
		ok(t, d.Reconcile(t.Context(), desired))
		k.oneTable(d)
		listing := k.list()
		for _, name := range maps {
			if !strings.Contains(listing, "map "+name+" ") {
				t.Errorf("after %d changes there is no %s", i+1, name)
			}
		}
		if n := strings.Count(listing, "192.0.2.1 . "); n != len(maps) {
			t.Errorf("after %d changes a client is remembered %d times, want %d:\n%s", i+1, n, len(maps), listing)
		}
		if strings.Contains(listing, "10.244.0.9") {
			t.Errorf("after %d changes a client has an endpoint that left", i+1)
		}
	}
}
