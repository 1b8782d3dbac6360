//go:build linux

package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// stickyServices are n Services with session affinity, each of which needs chains of
// its own.
func stickyServices(n int) *plan.Desired {
	d := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}, ClusterIPs: map[netip.Addr]struct{}{}}
	for i := range n {
		k := plan.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Protocol: model.TCP}
		d.Frontends[k] = &plan.Frontend{Key: k, Service: model.Name{Namespace: "default", Name: fmt.Sprint("web", i)},
			Affinity: 10800, Route: plan.Route{Endpoints: pool("10.244.0.1:8080", "10.244.0.2:8080")}}
	}
	return d
}

// More chains than fit into one transaction are added and removed in several.
func TestVeryManyStickyServices(t *testing.T) {
	testkit.NotInGuest(t, "it writes very many chains")
	const services = maxElements/chainRoom + 100
	k := newKernel(t)
	d := k.dataplane()
	desired := stickyServices(services)
	if r := ok(t, d.Reconcile(t.Context(), desired)); r.Transactions < 3 {
		t.Errorf("%d transactions for %d chains", r.Transactions, 2*services)
	}
	listing := k.nft("", "list", "table", "ip", "sluice")
	for _, prefix := range []string{"chain recall-", "chain remember-"} {
		if n := strings.Count(listing, prefix); n < services {
			t.Errorf("%d times %q, want %d", n, prefix, services)
		}
	}
	// The time that the kernel takes for another rule grows with those that use the same map.
	if n := strings.Count(listing, "\tmap clients-"); n != 1<<partBits {
		t.Errorf("the rules share %d maps of clients, want %d", n, 1<<partBits)
	}
	if good, err := d.Verify(t.Context()); !good || err != nil {
		t.Errorf("verified %t, %v", good, err)
	}
	if r := ok(t, k.dataplane().Reconcile(t.Context(), desired)); r.Transactions != 0 {
		t.Errorf("a restart wrote %d transactions", r.Transactions)
	}

	change := &plan.Change{}
	for key := range desired.Frontends {
		change.Removed = append(change.Removed, key)
	}
	ok(t, d.Apply(t.Context(), change))
	if listing := k.nft("", "list", "table", "ip", "sluice"); strings.Contains(listing, "chain recall-") || strings.Contains(listing, "chain remember-") || strings.Contains(listing, "clients-") {
		t.Error("chains or maps of clients are left")
	}
	if good, err := d.Verify(t.Context()); !good || err != nil {
		t.Errorf("verified %t, %v", good, err)
	}
}

// Maps of clients take much room: few Services may need more than one transaction, which nothing else says.
func TestStickyServicesInSeveralTransactions(t *testing.T) {
	const services = 4 * maxElements / mapRoom
	if r := ok(t, newKernel(t).dataplane().Reconcile(t.Context(), stickyServices(services))); len(r.Failed) > 0 {
		t.Errorf("refused: %v", r.Failed)
	}
}

// Maps of clients are there while a Service needs them, and keep their contents as long, also when the
// process restarts.
func TestMapsOfClientsFollowServices(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	desired := stickyServices(2)
	ok(t, d.Reconcile(t.Context(), desired))
	var maps []string
	for at, f := range desired.Frontends {
		id := affinityOf(f)
		maps = append(maps, id.clientMap(false).name())
		k.nft(fmt.Sprintf("add element ip sluice %s { 192.0.2.1 . %d . %d timeout 1h : 10.244.0.1 . 8080 }",
			id.clientMap(false).name(), id.words()[0], id.words()[1]), "-f", "-")
		more := *f
		more.Route.Endpoints = pool("10.244.0.1:8080", "10.244.0.2:8080", "10.244.0.3:8080")
		ok(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{&more}}))
		desired.Frontends[at] = &more
	}
	if maps[0] == maps[1] {
		t.Fatal("the two Services share a map: choose other names")
	}
	d = k.dataplane()
	if r := ok(t, d.Reconcile(t.Context(), desired)); r.Transactions != 0 {
		t.Errorf("a restart wrote %d transactions", r.Transactions)
	}
	for _, name := range maps {
		if listing := k.nft("", "list", "map", "ip", "sluice", name); strings.Count(listing, "192.0.2.1 ") != 1 {
			t.Errorf("a client was forgotten:\n%s", listing)
		}
	}
	for at, f := range desired.Frontends {
		if affinityOf(f).clientMap(false).name() == maps[0] {
			ok(t, d.Apply(t.Context(), &plan.Change{Removed: []plan.Key{at}}))
		}
	}
	listing := k.nft("", "list", "table", "ip", "sluice")
	if strings.Contains(listing, maps[0]) || !strings.Contains(listing, "map "+maps[1]+" ") || !strings.Contains(listing, "192.0.2.1 ") {
		t.Errorf("after one of two Services with session affinity was removed:\n%s", listing)
	}
	if good, err := d.Verify(t.Context()); !good || err != nil {
		t.Errorf("verified %t, %v", good, err)
	}
}

// Clients follow an endpoint from one kind of pool to the other, and lose their
// affinity when it leaves both.
func TestClientsFollowTheTrafficPolicy(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	at := key("10.96.0.1:80", model.TCP)
	frontend := func(local bool, endpoints ...string) *plan.Frontend {
		return &plan.Frontend{Key: at, Service: model.Name{Namespace: "default", Name: "web"}, Affinity: 60,
			Route: plan.Route{Endpoints: pool(endpoints...), Local: local}}
	}
	apply := func(f *plan.Frontend) {
		t.Helper()
		ok(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{f}}))
	}
	desired := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{at: frontend(false, "10.244.0.1:80", "10.244.0.2:80")}}
	ok(t, d.Reconcile(t.Context(), desired))
	id, clients := affinityOf(desired.Frontends[at]).words(), affinityOf(desired.Frontends[at]).clientMap(false)
	for i, endpoint := range []string{"10.244.0.1", "10.244.0.2"} {
		k.nft(fmt.Sprintf("add element ip sluice %s { 192.0.2.%d . %d . %d timeout 1h : %s . 80 }",
			clients.name(), i+1, id[0], id[1], endpoint), "-f", "-")
	}
	remembered := func() string {
		t.Helper()
		var out []string
		for set, name := range map[clientMap]string{clients: "cluster", clients.other(): "local"} {
			listing := k.nft("", "list", "map", "ip", "sluice", set.name())
			for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
				if strings.Contains(listing, client+" ") {
					out = append(out, name+" "+client)
				}
			}
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	for _, step := range []struct {
		to   *plan.Frontend
		want string
	}{
		{frontend(false, "10.244.0.1:80", "10.244.0.2:80"), "cluster 192.0.2.1, cluster 192.0.2.2"},
		{frontend(true, "10.244.0.1:80"), "local 192.0.2.1"},
		{frontend(false, "10.244.0.1:80", "10.244.0.2:80"), "cluster 192.0.2.1"},
		{frontend(false, "10.244.0.2:80"), ""},
	} {
		apply(step.to)
		testkit.Eventually(t, func() error {
			if got := remembered(); got != step.want {
				return fmt.Errorf("%v: remembered %q, want %q", step.to.Route, got, step.want)
			}
			return nil
		})
	}
}

// Changes do not wait for the update of clients, which ends, however many clients there
// are and however often other programs write meanwhile.
func TestForgettingClientsDelaysNoChange(t *testing.T) {
	testkit.NotInGuest(t, "it writes very many elements")
	const clients = 5_000
	k := newKernel(t)
	d := k.dataplane()
	at := key("10.96.0.1:80", model.TCP)
	f := &plan.Frontend{Key: at, Service: model.Name{Namespace: "default", Name: "web"}, Affinity: 60,
		Route: plan.Route{Endpoints: pool("10.244.0.1:80", "10.244.0.2:80")}}
	ok(t, d.Reconcile(t.Context(), &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{at: f}}))
	id, name := affinityOf(f).words(), affinityOf(f).clientMap(false).name()
	var list []string
	for i := range clients {
		list = append(list, fmt.Sprintf("192.0.%d.%d . %d . %d timeout 1h : 10.244.0.%d . 80", i/250, i%250, id[0], id[1], 1+i%2))
	}
	k.nft("add element ip sluice "+name+" { "+strings.Join(list, ", ")+" }", "-f", "-")
	d.stop() // no background tasks
	left := *f
	left.Route.Endpoints = pool("10.244.0.2:80")
	ok(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{&left}}))
	var quiet sync.Mutex // the nft command begins anew whenever another program writes
	count := func() int {
		quiet.Lock()
		defer quiet.Unlock()
		return strings.Count(k.nft("", "list", "map", "ip", "sluice", name), "expires")
	}
	if n := count(); n != clients {
		t.Errorf("after the change %d clients are remembered, want still %d", n, clients)
	}

	d.stop = dataplane.Background(d.followClients)
	ended := make(chan struct{})
	defer func() { <-ended }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			quiet.Lock()
			k.nft("add table ip theirs\ndelete table ip theirs", "-f", "-")
			quiet.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
	}()
	testkit.Eventually(t, func() error {
		if n := count(); n != clients/2 {
			return fmt.Errorf("%d clients are remembered, want %d", n, clients/2)
		}
		return nil
	})
}
