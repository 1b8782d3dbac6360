//go:build linux

package nftables

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

func TestRestartWritesOnlyTheDifference(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	changed := withAffinity6(variety())
	f := *changed.Frontends[key("10.96.0.1:80", model.TCP)]
	f.Route.Endpoints = pool("10.244.0.1:8080", "10.244.0.9:8080")
	changed.Frontends[f.Key] = &f
	ok(t, k.dataplane().Reconcile(ctx, changed))
	r := ok(t, k.dataplane().Reconcile(ctx, withAffinity6(variety())))
	// One endpoint replaced (a removal and an addition) in one transaction.
	if r.Transactions != 1 || r.Elements > 4 {
		t.Errorf("one replaced endpoint took %d transactions and %d elements", r.Transactions, r.Elements)
	}
}

func TestForeignChangesAreUndone(t *testing.T) {
	for _, tc := range []struct{ name, nft string }{
		{"ruleset flushed", "flush ruleset"},
		{"table deleted", "delete table ip sluice"},
		{"table flushed", "flush table ip sluice"},
		{"set flushed", "flush map ip sluice endpoints"},
		{"element removed", "delete element ip sluice services { 10.96.0.1 . tcp . 80 }"},
		{"element added", "add element ip sluice services { 10.96.0.77 . tcp . 80 : drop }"},
		{"endpoint added beyond the pool", "add element ip sluice endpoints { 10.96.0.1 . tcp . 80 . 17 : 10.9.9.9 . 99 }"},
		{"endpoint with an absurd index added", "add element ip sluice endpoints { 10.96.0.1 . tcp . 80 . 4000000000 : 10.9.9.9 . 99 }"},
		{"source range added", "add element ip sluice sources { 198.51.100.1 . 443 . 203.0.113.0 . 6025 }"},
		{"source range added of a length that no rule looks up", "add element ip sluice sources { 198.51.100.1 . 443 . 203.0.113.0 . 6024 }"},
		{"source range that is no prefix added", "add element ip sluice sources { 198.51.100.1 . 443 . 203.0.113.1 . 6025 }"},
		{"source range of an absurd length added", "add element ip6 sluice sources { 2001:db8:1::1 . 443 . 2001:db8:9:: . 6129 }"},
		{"source range of no frontend added", "add element ip sluice sources { 198.51.100.1 . 443 . 203.0.113.0 . 17025 }"},
		{"source range removed", "delete element ip6 sluice sources { 2001:db8:1::1 . 443 . 2001:db8:: . 6032 }"},
		{"source ranges flushed", "flush set ip sluice sources"},
		{"filter chain opened", "insert rule ip sluice filter-tcp-8.25-split-node-lb-2 goto split-node-lb-2"},
		{"filter chain flushed", "flush chain ip sluice filter-tcp-8.25-split-node-lb-2"},
		{"filter removed", "delete element ip sluice filters { 198.51.100.1 . tcp . 443 }"},
		{"filter opened", "delete element ip sluice filters { 198.51.100.1 . tcp . 443 }\nadd element ip sluice filters { 198.51.100.1 . tcp . 443 : accept }"},
		{"rule inserted", "insert rule ip sluice dispatch drop"},
		{"rules of a chain flushed", "flush chain ip sluice lb-2"},
		{"chain added", "add chain ip sluice mine { type filter hook input priority 0; }"},
		{"base chain deleted", "delete chain ip sluice prerouting"},
		{"chain renamed that rules lead to", "rename chain ip sluice lb-2 mine"},
		{"chain renamed that elements lead to", "rename chain ip sluice cluster-lb-2 mine"},
		{"base chain renamed", "rename chain ip sluice prerouting mine"},
		{"policy of a base chain", "add chain ip sluice forward { policy drop; }"},
		{"table put to sleep", "add table ip sluice { flags dormant; }"},
		{"address added", "add element ip6 sluice cluster-ips { fd00::99 }"},
		{"address removed", "delete element ip6 sluice nodeport-ips { 2001:db8::10 }"},
		{"set added", "add set ip sluice mine { type ipv4_addr; }"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testUndone(t, tc.nft, func(t *testing.T, d *Dataplane, do func()) {
				do()
				noticed(t, d)
			})
		})
		t.Run(tc.name+" while not listening", func(t *testing.T) {
			testUndone(t, tc.nft, func(t *testing.T, d *Dataplane, do func()) {
				d.monitor.during(t.Context(), manyElements, do)
				if strings.HasPrefix(tc.name, "endpoint") && !d.reportsCounts(t) {
					// No packet uses it, and only a dump of all endpoints would show it. It
					// is found when an element collides with it.
					d.monitor.report(func(w *foreignWrites) { w.tooMany = true })
				}
				noticed(t, d)
			})
		})
	}
}

func noticed(t *testing.T, d *Dataplane) {
	t.Helper()
	testkit.Receive(t, d.Disturbed(), "it is noticed")
}

// reportsCounts reports whether the kernel reports how many elements a set has.
func (d *Dataplane) reportsCounts(t *testing.T) bool {
	t.Helper()
	sets, err := d.reader.Sets(t.Context(), d.tables[0].Table)
	if err != nil {
		t.Fatal(err)
	}
	return sets[0].Count >= 0
}

// testUndone has another program change something, and notice detect it.
func testUndone(t *testing.T, tampering string, notice func(*testing.T, *Dataplane, func())) {
	ctx := t.Context()
	k := newKernel(t)
	d := k.dataplane()
	ok(t, d.Reconcile(ctx, variety()))
	want := meaning(d.snapshot(t))
	notice(t, d, func() { k.nft(tampering, "-f", "-") })
	if r := d.Repair(ctx); r.Err != nil {
		t.Logf("Repair: %v", r.Err)
		ok(t, d.Reconcile(ctx, variety()))
	} else if r.Transactions == 0 {
		t.Error("Repair did nothing")
	}
	if got := meaning(d.snapshot(t)); got != want {
		t.Errorf("after mending:\n%s\nwant:\n%s", got, want)
	}
	if listing := k.nft("", "list", "ruleset"); strings.Contains(listing, "policy drop") || strings.Contains(listing, "dormant") {
		t.Errorf("after mending:\n%s", listing)
	}
	if found, err := d.differs(ctx); err != nil || !found.empty() {
		t.Errorf("after mending %v differs, %v", found, err)
	}
}

// meaning omits the table's name: a table that was replaced can have another one.
func meaning(snapshot string) string {
	return strings.ReplaceAll(snapshot, tableNames[1], tableNames[0])
}

func TestForeignTablesDoNotDisturb(t *testing.T) {
	ctx := t.Context()
	k := newKernel(t)
	d := k.dataplane()
	ok(t, d.Reconcile(ctx, variety()))
	verify := func() uint64 {
		t.Helper()
		if good, err := d.Verify(ctx); err != nil || !good {
			t.Fatalf("Verify says %v, %v", good, err)
		}
		d.verifying <- struct{}{}
		defer func() { <-d.verifying }()
		return d.verified
	}
	first := verify()
	f := *variety().Frontends[key("10.96.0.1:80", model.TCP)]
	ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{&f}}))
	k.nft("table ip theirs {\n chain c {\n }\n }\n", "-f", "-")
	if verify() != first {
		t.Error("another program wrote to its own table while we listened, and Verify read ours")
	}
	theirs := func() { k.nft("delete table ip theirs", "-f", "-") }
	d.monitor.during(ctx, manyElements, theirs)
	if verify() == first {
		t.Error("another program wrote while we did not listen, and Verify read nothing")
	}
	select {
	case <-d.Disturbed():
		t.Error("a write to a foreign table disturbed us")
	default:
	}
	if r := ok(t, d.Repair(ctx)); r.Transactions != 0 {
		t.Errorf("%d transactions to repair nothing", r.Transactions)
	}
}

func TestOwnChangesDoNotDisturb(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	d := k.dataplane()
	ok(t, d.Reconcile(ctx, variety()))
	f := *variety().Frontends[key("10.96.0.1:80", model.TCP)]
	f.Route.Endpoints = nil
	ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{&f}}))
	ok(t, d.Reconcile(ctx, cluster(3000))) // enough for the monitor to be away
	k.nft("table ip theirs {\n chain c {\n }\n }\n", "-f", "-")
	// A change of ours after theirs: once it is detected, theirs was as well.
	k.nft("add element ip sluice services { 10.96.255.1 . tcp . 1 : drop }", "-f", "-")
	<-d.Disturbed()
	if r := ok(t, d.Repair(ctx)); r.Transactions != 1 || r.Elements != 1 {
		t.Errorf("the repair of one element took %d transactions and %d elements", r.Transactions, r.Elements)
	}
	select {
	case <-d.Disturbed():
		t.Error("our own repair counts as a disturbance")
	default:
	}
}

func TestOtherLayoutIsReplacedAtomically(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	old := `table ip sluice {
		map services { type ipv4_addr : verdict; }
		chain prerouting { type nat hook prerouting priority dstnat; }
	}`
	k.nft(old, "-f", "-")
	d := k.dataplane()
	ok(t, d.Reconcile(ctx, variety()))
	if got := k.nft("", "list", "tables"); strings.Contains(got, "table ip sluice\n") || !strings.Contains(got, "table ip sluice-b\n") {
		t.Errorf("tables now:\n%s", got)
	}
	k.nft(old, "-f", "-")
	d = k.dataplane()
	ok(t, d.Reconcile(ctx, variety()))
	if got := k.nft("", "list", "tables"); strings.Contains(got, "table ip sluice\n") || !strings.Contains(got, "table ip sluice-b\n") {
		t.Errorf("with both there, the tables are:\n%s", got)
	}
}

// otherLayout is a table of another version that gets packets, or that was not
// completed.
func otherLayout(name string, live bool) string {
	table := "table ip " + name + " {\nmap services { type ipv4_addr : verdict; }\n"
	if live {
		table += "chain prerouting { type nat hook prerouting priority dstnat; }\n"
	}
	return table + "}\n"
}

// Tables that get packets stay until the new one is complete, and are removed in the
// same transaction.
func TestEveryCombinationOfTables(t *testing.T) {
	testkit.NotInGuest(t, "others ask the same of the kernel")
	kinds := []string{"none", "other, live", "other, unfinished", "ours, live", "ours, unfinished"}
	for _, first := range kinds {
		for _, second := range kinds {
			t.Run(first+" and "+second, func(t *testing.T) { combineTables(t, first, second) })
		}
	}
}

func combineTables(t *testing.T, kinds ...string) {
	ctx := t.Context()
	k := newKernel(t)
	var live []string
	for i, kind := range kinds {
		name := tableNames[i]
		switch kind {
		case "other, live", "other, unfinished":
			k.nft(otherLayout(name, kind == "other, live"), "-f", "-")
		case "ours, live", "ours, unfinished":
			k.nft(renamed(t, name, kind == "ours, live"), "-f", "-")
		}
		if strings.HasSuffix(kind, ", live") {
			live = append(live, name)
		}
	}
	d := k.dataplane()
	d.commit = func(ctx context.Context, b *nft.Batch) error {
		if now := k.hooked(); len(live) > 0 && len(now) == 0 {
			t.Errorf("nothing is left of %v while the new table is built", live)
		}
		return d.writer.Commit(ctx, b)
	}
	ok(t, d.Reconcile(ctx, variety()))
	k.oneTable(d)
}

// hooked are the IPv4 tables that packets come to.
func (k *kernel) hooked() (names []string) {
	for _, table := range strings.Split(k.nft("", "-t", "list", "ruleset"), "\ntable ") {
		if strings.Contains(table, "hook prerouting") && !strings.HasPrefix(table, "ip6 ") {
			names = append(names, strings.Fields(strings.TrimPrefix(table, "table "))[1])
		}
	}
	return names
}

// oneTable checks that the table of a dataplane is complete, and the only one.
func (k *kernel) oneTable(d *Dataplane) {
	k.t.Helper()
	if now := k.hooked(); len(now) != 1 {
		k.t.Errorf("packets come to %v", now)
	}
	if tables := strings.Count(k.nft("", "list", "tables"), "table ip sluice"); tables != 1 {
		k.t.Errorf("%d tables are left", tables)
	}
	if good, err := d.Verify(k.t.Context()); !good || err != nil {
		k.t.Errorf("verified %t, %v", good, err)
	}
}

// Whenever a process is killed that replaces a table of another version, packets come to the old
// table or to the new one, and the next process completes its work, killed again or not.
func TestKilledAtEachStepOfAnUpgrade(t *testing.T) {
	testkit.NotInGuest(t, "it writes very many elements")
	ctx, want := t.Context(), cluster(400)
	complete := false // a process was not killed
	for steps := 0; !complete; steps++ {
		k := newKernel(t)
		k.nft(otherLayout(tableNames[0], true), "-f", "-")
		for process := range 2 {
			d, commits := k.dataplane(), 0
			d.bound = 300
			d.commit = func(ctx context.Context, b *nft.Batch) error {
				if commits++; commits > steps {
					return errors.New("killed")
				}
				return d.writer.Commit(ctx, b)
			}
			err := d.Reconcile(ctx, want).Err
			complete = complete || err == nil && process == 0
			if now := k.hooked(); len(now) != 1 {
				t.Errorf("after %d commits packets come to %v", steps, now)
			}
		}
		if complete && steps < 3 {
			t.Errorf("there were only %d steps", steps)
		}
		d := k.dataplane()
		ok(t, d.Reconcile(ctx, want))
		k.oneTable(d)
	}
}

// renamed is our own table under another name, as text; without its hooks if it is not
// complete.
func renamed(t *testing.T, name string, live bool) string {
	t.Helper()
	var b strings.Builder
	if err := Render(&b, variety(), dataplane.RenderOptions{Families: []model.Family{model.IPv4}}); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(b.String(), "table ip "+tableNames[0]+" {", "table ip "+name+" {", 1)
	if live {
		return text
	}
	return regexp.MustCompile(`(?s)\tchain [^}]*? hook [^}]*?\n\t}\n`).ReplaceAllString(text, "")
}

func TestHalfBuiltTableIsFinished(t *testing.T) {
	testkit.NotInGuest(t, "it writes very many elements")
	ctx := context.Background()
	k := newKernel(t)
	d := k.dataplane()
	want := cluster(12_000)
	commits := 0
	d.commit = func(ctx context.Context, b *nft.Batch) error {
		if commits++; commits > 2 {
			return errors.New("killed")
		}
		return d.writer.Commit(ctx, b)
	}
	if r := d.Reconcile(ctx, want); r.Err == nil {
		t.Fatal("the first process was to be killed half-way")
	}
	if got := k.nft("", "-t", "list", "table", "ip", "sluice"); strings.Contains(got, "hook") {
		t.Error("packets come to a half-built table")
	}
	d = k.dataplane()
	ok(t, d.Reconcile(ctx, want))
	if good, err := d.Verify(ctx); err != nil || !good {
		t.Errorf("Verify says %v, %v", good, err)
	}
	if got := k.nft("", "-t", "list", "table", "ip", "sluice"); !strings.Contains(got, "hook prerouting") {
		t.Error("the table was not finished")
	}
}

// badSources is a frontend that the kernel refuses: a source range is of the other
// family.
func badSources(k plan.Key) *plan.Frontend {
	return &plan.Frontend{Key: k, Filtered: true, Sources: prefixes("10.0.0.0/8", "fd00::/8"),
		Route: plan.Route{Endpoints: pool("10.244.0.1:80")}}
}

func TestRefusedFrontendsAmongVeryMany(t *testing.T) {
	testkit.NotInGuest(t, "it writes very many elements")
	ctx := context.Background()
	d := newKernel(t).dataplane()
	want := cluster(9_000) // several transactions
	var bad []string
	for _, ip := range addrs("198.51.100.1", "198.51.100.2", "198.51.100.3") {
		k := plan.Key{Addr: ip, Port: 443, Protocol: model.TCP}
		want.Frontends[k] = badSources(k)
		bad = append(bad, k.String())
	}
	r := d.Reconcile(ctx, want)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	var failed []string
	for k := range r.Failed {
		failed = append(failed, k.String())
		delete(want.Frontends, k)
	}
	slices.Sort(failed)
	if diff := cmp.Diff(bad, failed); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	// Another process finds all others, and nothing of the refused ones.
	if r := ok(t, d.Reconcile(ctx, want)); r.Transactions != 0 {
		t.Errorf("%d transactions were needed to repair the rest, want none", r.Transactions)
	}
}

func TestRefusalShowsForeignWrites(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	d := k.dataplane()
	want := variety()
	ok(t, d.Reconcile(ctx, want))
	k.nft("delete element ip sluice endpoints { 10.96.0.1 . tcp . 80 . 1 }", "-f", "-")
	f := *want.Frontends[key("10.96.0.1:80", model.TCP)]
	f.Route.Endpoints = pool("10.244.0.1:8080")
	<-d.Disturbed() // by the command nft
	other := *want.Frontends[key("10.96.0.1:53", model.UDP)]
	other.Route.Endpoints = pool("10.244.0.77:8080")
	r := d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{&f, &other}})
	if r.Err != nil || len(r.Failed) != 1 || r.Failed[f.Key] == nil {
		t.Fatalf("Apply: %v, failed %v", r.Err, r.Failed)
	}
	select {
	case <-d.Disturbed():
	default:
		t.Error("a refusal that shows a foreign write does not disturb")
	}
	ok(t, d.Repair(ctx))
	ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{&f}}))
	if found, err := d.differs(ctx); err != nil || !found.empty() {
		t.Errorf("after mending %v differs, %v", found, err)
	}
}

func TestHugePoolGrowsAndShrinks(t *testing.T) {
	testkit.NotInGuest(t, "it writes very many elements")
	ctx := context.Background()
	d := newKernel(t).dataplane()
	frontend := func(n int) *plan.Frontend {
		f := &plan.Frontend{Key: key("10.96.0.1:80", model.TCP)}
		for i := range n {
			f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: pool("10.0.0.0:80")[0].AddrPort})
			a := [4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}
			f.Route.Endpoints[i].AddrPort = netipAddrPort(a, 80)
		}
		return f
	}
	want := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}}
	ok(t, d.Reconcile(ctx, want))
	for _, n := range []int{25_000, 70_000, 69_999, 12_345, 3, 0} {
		f := frontend(n)
		change := &plan.Change{Set: []*plan.Frontend{f}}
		for left := true; left; {
			r := ok(t, d.Apply(ctx, change))
			if r.Elements > 18_000 {
				t.Fatalf("%d elements were written at a time", r.Elements)
			}
			left = len(r.Left) > 0
		}
		if good, err := d.Verify(ctx); err != nil || !good {
			t.Fatalf("with %d endpoints Verify says %v, %v", n, good, err)
		}
		if got := len(d.tables[0].frontends[f.Key].slots); got != n {
			t.Errorf("%d slots, want %d", got, n)
		}
	}
}

func TestCountersContinueWhenAPoolChanges(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	d := k.dataplane()
	want := cluster(200)
	ok(t, d.Reconcile(ctx, want))
	one := key("10.96.0.1:80", model.TCP)
	k.nft("delete element ip sluice services { 10.96.0.1 . tcp . 80 }\n"+
		"add element ip sluice services { 10.96.0.1 . tcp . 80 counter packets 42 bytes 4200 : goto cluster-lb-1 }", "-f", "-")
	check := func(when string) {
		t.Helper()
		got := map[plan.Key]int64{}
		if _, err := d.Traffic(ctx, func(k plan.Key, t dataplane.Traffic) { got[k] = t.Connections }); err != nil {
			t.Fatal(err)
		}
		if got[one] != 42 || len(got) != 200 {
			t.Errorf("%s: %d connections counted in one of %d frontends, want 42 of 200", when, got[one], len(got))
		}
	}
	check("at first")
	grow := func(f *plan.Frontend) *plan.Frontend {
		g := *f
		g.Route.Endpoints = append(pool("10.1.1.1:80"), f.Route.Endpoints...)
		want.Frontends[f.Key] = &g
		return &g
	}
	ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{grow(want.Frontends[one])}}))
	check("after one change")
	var all []*plan.Frontend
	for _, f := range maps.Clone(want.Frontends) {
		all = append(all, grow(f))
	}
	ok(t, d.Apply(ctx, &plan.Change{Set: all}))
	check("after changes of all")
	ok(t, k.dataplane().Reconcile(ctx, want))
	check("after a restart")
}
