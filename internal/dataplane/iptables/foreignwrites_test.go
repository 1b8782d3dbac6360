//go:build linux

package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/xtables"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// disturbedSoon waits until the dataplane detects a foreign write.
func disturbedSoon(t *testing.T, d *Dataplane) {
	t.Helper()
	testkit.Receive(t, d.Disturbed(), "it is detected")
}

func TestForeignWritesAreRepaired(t *testing.T) {
	for _, tc := range []struct {
		name, commands string
		inGuest        bool // which stands for the others
	}{
		{"table nat flushed", "-t nat -F", false},
		{"all chains deleted", "-t nat -F; -t nat -X", true},
		{"table filter flushed", "-F; -X", false},
		{"chain flushed", "-t nat -F KUBE-SERVICES", false},
		{"hook deleted", "-t nat -D OUTPUT 1", false},
		{"hooks doubled", "-A OUTPUT -m conntrack --ctstate NEW -j KUBE-UNTRANSLATED", false},
		{"rule inserted", "-t nat -I KUBE-SERVICES -j RETURN", true},
		{"rule deleted", "-t nat -D KUBE-SERVICES 1", false},
		{"rule replaced", "-t nat -R KUBE-SERVICES 1 -j RETURN", false},
		{"chain like ours added", "-t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA", false},
		{"canary gone", "-t nat -X KUBE-PROXY-CANARY", false},
		{"rule replaced by one of the same length", "-t nat -R KUBE-MARK-MASQ 1 -j MARK --set-xmark 0x8000/0x8000", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !tc.inGuest {
				testkit.NotInGuest(t, "others do nearly the same")
			}
			inEachVariant(t, func(t *testing.T, k *kernel) {
				ctx := t.Context()
				d := k.dataplane()
				d.period = watchPeriod / 20
				ok(t, d.Reconcile(ctx, variety()))
				want := k.dump()
				for command := range strings.SplitSeq(tc.commands, "; ") {
					k.iptables(command)
				}
				disturbedSoon(t, d)
				ok(t, d.Reconcile(ctx, variety()))
				if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(k.dump(), "\n")); diff != "" {
					t.Errorf("before and after mending:\n%s", diff)
				}
				if good, err := d.Verify(ctx); err != nil || !good {
					t.Errorf("after mending Verify says %v, %v", good, err)
				}
			})
		})
	}
}

// A renamed chain is foreign, and stays. Renaming changes neither the number of entries
// of a table nor their size.
func TestRenamedChainIsRestored(t *testing.T) {
	inEachVariant(t, func(t *testing.T, k *kernel) {
		ctx := context.Background()
		d := k.dataplane()
		d.period = watchPeriod / 20
		ok(t, d.Reconcile(ctx, variety()))
		want := k.iptables("-t filter -S KUBE-UNTRANSLATED")
		k.iptables("-t filter -E KUBE-PROXY-FIREWALL MINE")
		disturbedSoon(t, d)
		ok(t, d.Reconcile(ctx, variety()))
		if got := k.iptables("-t filter -S KUBE-UNTRANSLATED"); got != want {
			t.Errorf("after mending:\n%s\nwant:\n%s", got, want)
		}
		if good, err := d.Verify(ctx); err != nil || !good {
			t.Errorf("after mending Verify says %v, %v", good, err)
		}
	})
}

// busyDriver has a change written while a table is listed, a few times.
type busyDriver struct {
	driver
	change func()
	left   int
}

func (h *busyDriver) List(ctx context.Context, t iptables.Table) (*iptables.Listing, error) {
	l, err := h.driver.List(ctx, t)
	if h.left--; h.left >= 0 {
		h.change()
	}
	return l, err
}

// Foreign writes are found even while changes follow one another.
func TestChangesDoNotHideForeignWrites(t *testing.T) {
	ctx := t.Context()
	fake := newFakeDriver()
	d := fake.dataplane(t)
	desired := variety()
	ok(t, d.Reconcile(ctx, desired))
	f := *desired.Frontends[key("10.96.0.1:80", model.TCP)]
	n := 0
	d.driver = &busyDriver{driver: d.driver, left: 3, change: func() {
		n++
		f.Route.Endpoints = endpoints(fmt.Sprintf("10.244.0.%d:8080", n))
		ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{&f}}))
	}}
	chains := fake.tables[iptables.Table{Family: model.IPv4, Name: filter}].chains
	chains["KUBE-PROXY-FIREWALL"] = append(chains["KUBE-PROXY-FIREWALL"], "-j DROP")
	fake.generation++
	if good, err := d.Verify(ctx); err != nil || good {
		t.Errorf("Verify says %v, %v", good, err)
	}
	if n != 3 {
		t.Errorf("%d changes were written meanwhile, want 3", n)
	}
}

// countingDriver counts listings.
type countingDriver struct {
	driver
	lists atomic.Int32
}

func (h *countingDriver) List(ctx context.Context, t iptables.Table) (*iptables.Listing, error) {
	h.lists.Add(1)
	return h.driver.List(ctx, t)
}

// Writes to foreign tables cause no listing: notifications say what they touched.
func TestForeignTablesCauseNoListing(t *testing.T) {
	ctx := t.Context()
	k := newKernel(t, iptables.NFT)
	d := k.dataplane()
	d.period = time.Hour // this test looks by itself
	ok(t, d.Reconcile(ctx, variety()))
	if good, err := d.Verify(ctx); err != nil || !good {
		t.Fatalf("Verify says %v, %v", good, err)
	}
	counting := &countingDriver{driver: d.driver}
	d.driver = counting
	for range 3 {
		k.run("", "nft", "add table ip theirs; add chain ip theirs c; add rule ip theirs c counter; flush chain ip theirs c")
		if good, err := d.Verify(ctx); err != nil || !good {
			t.Fatalf("Verify says %v, %v", good, err)
		}
	}
	if n := counting.lists.Load(); n != 0 {
		t.Errorf("%d tables were listed", n)
	}
	k.iptables("-t nat -F KUBE-POSTROUTING")
	if good, err := d.Verify(ctx); err != nil || good {
		t.Errorf("Verify says %v, %v", good, err)
	}
}

// iptables lists a dormant table as if packets passed it.
func TestDormantTableIsWoken(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t, iptables.NFT)
	d := k.dataplane()
	d.period = watchPeriod / 20
	ok(t, d.Reconcile(ctx, variety()))
	for _, table := range []string{"ip nat", "ip6 filter"} {
		k.run("", "nft", "add table "+table+" { flags dormant; }")
		disturbedSoon(t, d)
		ok(t, d.Reconcile(ctx, variety()))
		if listing := k.run("", "nft", "list table "+table); strings.Contains(listing, "dormant") {
			t.Errorf("after mending:\n%.200s", listing)
		}
		if good, err := d.Verify(ctx); err != nil || !good {
			t.Errorf("after mending Verify says %v, %v", good, err)
		}
	}
}

// Foreign rules stay as they are, and changing them does not disturb.
func TestForeignRulesAreNotTouched(t *testing.T) {
	const theirs = `*nat
:THEIRS - [0:0]
:KUBE-FIREWALL - [0:0]
-A PREROUTING -p tcp -m tcp --dport 8080 -j THEIRS
-A THEIRS -j RETURN
-A KUBE-FIREWALL -j RETURN
COMMIT
*mangle
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
`
	inEachVariant(t, func(t *testing.T, k *kernel) {
		ctx := context.Background()
		k.run(theirs, "iptables-"+k.variant.String()+"-restore", "--noflush")
		before := k.dump()
		d := k.dataplane()
		ok(t, d.Reconcile(ctx, variety()))
		k.iptables("-t nat -A THEIRS -j RETURN")
		if good, err := d.Verify(ctx); err != nil || !good {
			t.Errorf("Verify says %v, %v of a foreign rule", good, err)
		}
		if suspects(d) {
			t.Error("a write is still suspected after Verify")
		}
		k.iptables("-t nat -D THEIRS 1")
		k.remove()
		// Of the other family only the tables are left, which listing creates.
		if diff := cmp.Diff(lines(before), lines(k.dump())); diff != "" {
			t.Errorf("before and after:\n%s", diff)
		}
	})
}

// suspects reports whether the dataplane suspects that another program wrote.
func suspects(d *Dataplane) (yes bool) {
	d.locked(func() { yes = d.foreign.suspected })
	return yes
}

// lines are those of chains of users and of rules.
func lines(dump string) []string {
	var list []string
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":") && strings.Contains(line, " - ") {
			list = append(list, line)
		}
	}
	return list
}

func TestOwnChangesDoNotDisturb(t *testing.T) {
	inEachVariant(t, func(t *testing.T, k *kernel) {
		ctx := context.Background()
		d := k.dataplane()
		ok(t, d.Reconcile(ctx, variety()))
		if suspects(d) {
			t.Error("the first commit is suspected")
		}
		f := *variety().Frontends[key("10.96.0.1:80", model.TCP)]
		f.Route.Endpoints = nil
		ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{&f}, Removed: []plan.Key{key("10.96.0.1:81", model.TCP)}}))
		if good, err := d.Verify(ctx); err != nil || !good || suspects(d) {
			t.Errorf("Verify says %v, %v; suspected: %v", good, err, suspects(d))
		}
	})
}

// While others keep writing, tables are listed seldom. A flush is detected nevertheless.
func TestFlushIsNoticedAmongForeignWrites(t *testing.T) {
	inEachVariant(t, func(t *testing.T, k *kernel) {
		ctx := context.Background()
		d := k.dataplane()
		ok(t, d.Reconcile(ctx, variety()))
		k.iptables("-t nat -N THEIRS")
		d.locked(func() { d.foreign.listAfter = d.clock.Now().Add(time.Hour) })
		if good, err := d.inspect(ctx, false); err != nil || !good {
			t.Errorf("of a foreign chain: %v, %v", good, err)
		}
		k.iptables("-t nat -F")
		if good, err := d.inspect(ctx, false); err != nil || good {
			t.Errorf("of a flush: %v, %v", good, err)
		}
	})
}

const upstreams = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-EXT-AAAAAAAAAAAAAAAA - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SERVICES -d 10.96.9.9/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30000 -j KUBE-EXT-AAAAAAAAAAAAAAAA
-A KUBE-EXT-AAAAAAAAAAAAAAAA -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -j DNAT --to-destination 10.244.9.9:80
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FIREWALL -s 127.0.0.0/8 ! -d 127.0.0.0/8 -j DROP
COMMIT
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
`

func TestUpstreamsRulesAreReplaced(t *testing.T) {
	inEachVariant(t, func(t *testing.T, k *kernel) {
		ctx := context.Background()
		clean := newKernel(t, k.variant)
		ok(t, clean.dataplane().Reconcile(ctx, variety()))
		k.run(upstreams, "iptables-"+k.variant.String()+"-restore", "--noflush")
		ok(t, k.dataplane().Reconcile(ctx, variety()))
		want := lines(clean.dump())
		var got []string
		for _, line := range lines(k.dump()) {
			if !strings.Contains(line, "KUBE-FIREWALL") { // kubelet's
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("on an empty node and after upstream:\n%s", diff)
		}
		if !strings.Contains(k.dump(), "-A INPUT -j KUBE-FIREWALL") {
			t.Error("kubelet's rules are gone")
		}
	})
}

// Listing a legacy table creates it, at a cost for every packet.
func TestTableMangleIsNotCreated(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t, iptables.Legacy)
	d := k.dataplane()
	ok(t, d.Reconcile(ctx, variety()))
	if good, err := d.Verify(ctx); err != nil || !good {
		t.Errorf("Verify says %v, %v", good, err)
	}
	for _, f := range model.Families {
		var names []string
		err := k.ns.Do(func() (err error) {
			names, err = map[model.Family]*xtables.Family{model.IPv4: xtables.IPv4, model.IPv6: xtables.IPv6}[f].Tables()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Sort(names); !slices.Equal(names, []string{filter, nat}) {
			t.Errorf("%v has tables %v", f, names)
		}
	}
}

// A chain that a foreign rule leads to cannot be removed. It is flushed, the others are
// removed, and it is removed when the rule is gone.
func TestChainThatOthersUseStaysEmpty(t *testing.T) {
	inEachVariant(t, func(t *testing.T, k *kernel) {
		ctx := context.Background()
		k.run(upstreams, "iptables-"+k.variant.String()+"-restore", "--noflush")
		k.iptables("-t nat -N THEIRS")
		k.iptables("-t nat -A THEIRS -j KUBE-SVC-AAAAAAAAAAAAAAAA")
		d := k.dataplane()
		ok(t, d.Reconcile(ctx, variety()))
		got := k.iptables("-t nat -S")
		if !strings.Contains(got, "-N KUBE-SVC-AAAAAAAAAAAAAAAA") || strings.Contains(got, "-A KUBE-SVC-AAAAAAAAAAAAAAAA") || strings.Contains(got, "KUBE-SEP-AAAAAAAAAAAAAAAA") {
			t.Errorf("rules now:\n%s", got)
		}
		k.iptables("-t nat -F THEIRS")
		if good, err := d.Verify(ctx); err != nil || !good {
			t.Errorf("Verify says %v, %v", good, err)
		}
		ok(t, d.Apply(ctx, &plan.Change{}))
		if got := k.iptables("-t nat -S"); strings.Contains(got, "KUBE-SVC-AAAAAAAAAAAAAAAA") {
			t.Errorf("the chain is still there:\n%s", got)
		}
	})
}
