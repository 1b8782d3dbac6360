//go:build linux

package nftables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// directFixture is a node n1 with three others, and a Service with endpoints on some of them.
func directFixture(index int, on ...string) *dataplane.Direct {
	d := &dataplane.Direct{Node: "n1", Device: "lo", Index: index, MasqueradeMark: 0x4000,
		IPv4: netip.MustParseAddr("192.0.2.11"), IPv6: netip.MustParseAddr("2001:db8::11"),
		NodePortIPs: []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")},
		Frontends:   map[plan.Key]*plan.Frontend{}, Changed: map[plan.Key]struct{}{}}
	for i := 2; i <= 4; i++ {
		mac := dataplane.MAC{2, 0, 0, 0, 0, byte(i)}
		four, six := netip.MustParseAddr(fmt.Sprintf("192.0.2.1%d", i)), netip.MustParseAddr(fmt.Sprintf("2001:db8::1%d", i))
		d.Peers = append(d.Peers, dataplane.DirectPeer{Name: fmt.Sprintf("n%d", i), IPs: []netip.Addr{four, six},
			IPv4: dataplane.DirectPath{Addr: four, MAC: mac, Usable: true}, IPv6: dataplane.DirectPath{Addr: six, MAC: mac, Usable: true}})
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP} {
		for _, vip := range []string{"198.18.0.10", "2001:db8:18::10"} {
			addr := netip.MustParseAddr(vip)
			pod := netip.MustParseAddrPort("10.244.1.1:8080")
			if addr.Is6() {
				pod = netip.MustParseAddrPort("[fd00::1]:8080")
			}
			direct := &plan.Direct{}
			for _, n := range on {
				direct.Nodes = append(direct.Nodes, plan.NodeShare{Name: n, Share: 1})
				if n == "n1" {
					direct.Local = &plan.Route{Local: true, Endpoints: []plan.Endpoint{{AddrPort: pod, Local: true}}}
				}
			}
			for _, k := range []plan.Key{{Addr: addr, Port: 80, Protocol: p}, plan.NodePortKey(model.FamilyOf(addr), 30080, p)} {
				d.Frontends[k] = &plan.Frontend{Key: k, Service: model.Name{Namespace: "default", Name: "web"}, Port: "p", Direct: direct,
					Route: plan.Route{Endpoints: []plan.Endpoint{{AddrPort: pod}}}}
				d.Changed[k] = struct{}{}
			}
		}
	}
	return d
}

// What is in the kernel follows from what there is, whatever there was before; a later process adopts it, and knows
// which node had a slot before.
func TestDirectTables(t *testing.T) {
	k := newKernel(t)
	k.ns.Run(t, "", "ip", "link", "set", "lo", "up")
	d := k.dataplane()
	apply := func(d *Dataplane, settings *dataplane.Direct) {
		t.Helper()
		if err := d.Direct(t.Context(), settings); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	d.clock = func() time.Time { return begin }
	list := func() string {
		t.Helper()
		return k.nft("", "list ruleset")
	}
	apply(d, directFixture(1, "n2", "n3", "n4"))
	if now := list(); strings.Contains(now, "goto pass-") || !strings.Contains(now, "goto second-") {
		t.Errorf("before others know it packets are handed on\n%s", now)
	}
	begin = begin.Add(dataplane.DirectDelay)
	unchanged := directFixture(1, "n2", "n3", "n4")
	unchanged.Changed = nil
	apply(d, unchanged)
	three := list()
	for range 2 { // what is not used any more goes the next time
		apply(d, directFixture(1, "n1", "n2", "n3", "n4"))
	}
	four := list()
	if !strings.Contains(three, "goto pass-") || three == four {
		t.Fatalf("there is\n%s", three)
	}
	moved := len(d.pools0().handover.table.ownSlots())
	if moved == 0 || previousOfAll(d) != moved {
		t.Errorf("%d slots became this node's, and of %d it is known who had them before", moved, previousOfAll(d))
	}
	// A process that is started anew knows from the first which nodes are proven, and changes nothing.
	k.nft("", "add element netdev sluice-direct proofs-ip { 192.0.2.12 . 1 timeout 150s }")
	again := k.dataplane()
	proven := netip.MustParseAddr("192.0.2.12")
	if found, err := again.Proofs(t.Context(), []netip.Addr{proven}); err != nil || found[proven].Foreign.IsZero() {
		t.Errorf("of a node whose probe came back it knows %v, %v", found[proven], err)
	}
	k.nft("", "flush set netdev sluice-direct proofs-ip")
	apply(again, directFixture(1, "n1", "n2", "n3", "n4"))
	if n := again.directState.conn.Commits(); n > 0 {
		t.Errorf("it wrote %d transactions", n)
	}
	if now := list(); now != four {
		t.Errorf("it changed the rules\n%s\nto\n%s", four, now)
	}
	if n := previousOfAll(again); n != moved {
		t.Errorf("of %d slots it is known who had them before, not of %d", n, moved)
	}
	// A node that cannot be used loses its slots to nobody, and gets them back.
	broken := directFixture(1, "n1", "n2", "n3", "n4")
	broken.Peers[0].IPv4.Usable, broken.Peers[0].IPv4.MAC = false, dataplane.MAC{}
	apply(again, broken)
	for _, table := range []string{"netdev", "ip"} {
		if rules := k.nft("", "list table "+table+" sluice-direct"); strings.Contains(strings.ReplaceAll(rules, "node-ips", ""), ": 192.0.2.12") {
			t.Errorf("packets are handed to a node that does not answer:\n%.4000s", rules)
		}
	}
	apply(again, directFixture(1, "n1", "n2", "n3", "n4"))
	if now := list(); now != four {
		t.Errorf("after a node came back there is\n%s\nnot\n%s", now, four)
	}
	// What another program changes is mended, with the same memory.
	noChange := directFixture(1, "n1", "n2", "n3", "n4")
	noChange.Changed = nil
	for _, change := range []string{"flush chain netdev sluice-direct from-peer", "delete table ip sluice-direct", "flush map ip6 sluice-direct second",
		"flush set netdev sluice-direct peers"} {
		k.nft("", change)
		apply(again, noChange)
		if now := list(); strings.Count(now, "\n") < strings.Count(four, "\n")/2 || strings.Count(now, "goto pass-") != strings.Count(four, "goto pass-") {
			t.Errorf("after %q there is\n%.4000s", change, now)
		}
	}
	// Datagrams forget who had their slots, connections do not.
	again.clock = func() time.Time { return time.Now().Add(2 * datagramMemory) }
	apply(again, directFixture(1, "n1", "n2", "n3", "n4"))
	apply(again, nil)
	if tables := k.nft("", "list tables"); strings.Contains(tables, "sluice") {
		t.Errorf("left are %s", tables)
	}
}

// Direct return has tables of its own: those of the Services are the same with it, without it and after it, byte for
// byte, and removing everything removes them too.
func TestDirectLeavesTheTablesOfServices(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	ok(t, d.Reconcile(t.Context(), variety()))
	without := k.nft("", "list ruleset")
	with := variety()
	for _, fe := range with.Frontends {
		fe.Direct = &plan.Direct{Nodes: []plan.NodeShare{{Name: "n2", Share: 1}}}
	}
	other := k.dataplane()
	ok(t, other.Reconcile(t.Context(), with))
	if diff := cmp.Diff(without, k.nft("", "list ruleset")); diff != "" {
		t.Errorf("frontends with direct return have other rules (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := other.Direct(t.Context(), directFixture(1, "n1", "n2")); err != nil {
			t.Fatal(err)
		}
		if now := k.nft("", "list ruleset"); !strings.Contains(now, without) || strings.Count(now, "sluice-direct {") != 3 {
			t.Errorf("switched on there is\n%s\nwhich lacks\n%s", now, without)
		}
		if err := other.Direct(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(without, k.nft("", "list ruleset")); diff != "" {
			t.Errorf("switched off there is (-want +got):\n%s", diff)
		}
	}
	one := directFixture(1, "n1", "n2")
	for _, one.NoIPv6 = range []bool{false, true, false, true} { // of one family nothing of the other one is there
		if err := other.Direct(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		tables := k.nft("", "list tables")
		if has := strings.Contains(tables, "ip6 "+directTableOf("")); has == one.NoIPv6 || !strings.Contains(tables, "ip "+directTableOf("")) {
			t.Errorf("IPv4 only: %v, and there are the tables\n%s", one.NoIPv6, tables)
		}
	}
	found := Detect(&dataplane.Inventory{Tables: map[string][]string{"netdev " + directTableOf(""): nil, "ip " + directTableOf(""): nil}})
	if len(found.Traces) != 2 {
		t.Errorf("of its tables are recognized %v", found.Traces)
	}
	for _, running := range []dataplane.Dataplane{other, struct{ *Dataplane }{other}} { // and another mode
		want := running == dataplane.Dataplane(other)
		if err := other.Direct(t.Context(), directFixture(1, "n1", "n2")); err != nil {
			t.Fatal(err)
		}
		err := k.ns.Do(func() error {
			return Remove(t.Context(), dataplane.RemoveOptions{Logger: logr.Discard(), Running: running})
		})
		tables := k.nft("", "list tables")
		if err != nil || strings.Contains(tables, directTableOf("")) != want || strings.Count(tables, "\n") < 2 {
			t.Errorf("while %T runs, what remains are\n%s%v", running, tables, err)
		}
	}
	k.remove()
	if left := k.nft("", "list ruleset"); left != "" {
		t.Errorf("after everything was removed there is\n%s", left)
	}
}

// pools0 is a pool of IPv4.
func (d *directState) pools0() *directPool {
	for _, p := range d.families[model.IPv4].pools {
		if p.protocol == model.TCP {
			return p
		}
	}
	return nil
}

// ownSlots are those of this node.
func (t *slotTable) ownSlots() (slots []int) {
	for i, own := range t.own {
		if own {
			slots = append(slots, i)
		}
	}
	return slots
}

func previousOfAll(d *Dataplane) (n int) {
	r := d.pools0().handover
	for _, i := range r.table.ownSlots() {
		if len(r.asked) > 0 && r.asked[0][i] != thisNode {
			n++
		}
	}
	return n
}

// manyDirect is the fixture with more Services than one, whose load balancer IPs follow each other.
func manyDirect(services int, on func(i int) []string) *dataplane.Direct {
	all := directFixture(1)
	all.Frontends, all.Changed = map[plan.Key]*plan.Frontend{}, map[plan.Key]struct{}{}
	for i := range services {
		for _, fe := range directFixture(1, on(i)...).Frontends {
			if fe.NodePort() {
				continue
			}
			fe.Key.Port, fe.Service.Name = uint16(1000+i), fmt.Sprint("s", i)
			all.Frontends[fe.Key], all.Changed[fe.Key] = fe, struct{}{}
		}
	}
	return all
}

// Service ports with endpoints on the same nodes have one table of slots, also if it was a restart or a change that
// made them the same, and who had slots before differs. What is not used any more is removed.
func TestDirectTablesAreShared(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	at := time.Now()
	d.clock = func() time.Time { return at }
	all := func(int) []string { return []string{"n1", "n2", "n3", "n4"} }
	first := func(i int) []string { return all(i)[:4-max(0, 1-i)] }
	check := func(what string, on func(int) []string, tables, asked int) {
		t.Helper()
		for range 2 {
			if err := d.Direct(t.Context(), manyDirect(10, on)); err != nil {
				t.Fatal(err)
			}
		}
		rules := k.nft("", "list table ip sluice-direct")
		if has := strings.Count(rules, "map slots-"); has != tables || strings.Count(rules, "set own-") != tables {
			t.Errorf("%s: %d tables, not %d", what, has, tables)
		}
		if has := strings.Count(rules, "map asked-"); has != asked {
			t.Errorf("%s: %d maps of nodes that had slots before, not %d", what, has, asked)
		}
		if has := strings.Count(rules, "chain receive-"); has != 20 {
			t.Errorf("%s: %d chains to endpoints here, not one for each service port", what, has)
		}
	}
	check("at first", all, 1, 0)
	at = at.Add(dataplane.DirectDelay)
	check("when it begins", all, 1, 0)
	check("when one has other nodes", first, 2, 2) // of TCP and UDP
	check("when it has the same again", all, 1, 2)
	d = k.dataplane()
	d.clock = func() time.Time { return at }
	check("after a restart", all, 1, 2)
	if n := d.directState.conn.Commits(); n > 0 {
		t.Errorf("a restart wrote %d transactions", n)
	}
	at = at.Add(datagramMemory)
	check("when datagrams are forgotten", all, 1, 1)
	// An address that another Service gets is its own, whoever is written first.
	for _, services := range [][2]string{{"s0", "s1"}, {"s1", "s0"}} {
		moved := manyDirect(1, all)
		for k, fe := range moved.Frontends {
			fe.Service.Name = services[1]
			moved.Frontends[k], moved.Changed[k] = fe, struct{}{}
		}
		for port := uint16(1001); port < 1010; port++ {
			for k := range manyDirect(1, all).Frontends {
				k.Port = port
				moved.Changed[k] = struct{}{}
			}
		}
		if err := d.Direct(t.Context(), moved); err != nil {
			t.Fatal(err)
		}
		if rules := k.nft("", "list map ip sluice-direct received"); strings.Count(rules, "goto receive-") != 2 {
			t.Errorf("after the addresses of %s became those of %s there is\n%s", services[0], services[1], rules)
		}
	}
}

// Who is asked for a connection that is not known here: the node that has the slot, and those that had it.
func TestNodesThatAreAsked(t *testing.T) {
	const n2, n3, n4, dead, mute = 2, 3, 4, 5, 6 // mute answers on the link, but not to probes
	f := &directFamily{usable: []bool{n2: true, n3: true, n4: true, mute: false}, reached: []bool{n2: true, n3: true, n4: true, mute: true}}
	for _, tt := range []struct {
		protocol model.Protocol
		owner    nodeNumber
		formerly candidates
		want     candidates // besides the owner, if it gets packets
	}{
		{model.TCP, thisNode, candidates{}, candidates{}},
		{model.TCP, thisNode, candidates{n2, n3, n4}, candidates{n2, n3, n4}},
		{model.TCP, n2, candidates{}, candidates{}},
		{model.TCP, n2, candidates{n3, n2, n4}, candidates{n3, n4}},
		{model.TCP, n2, candidates{n3, dead, n4}, candidates{n3}}, // three are asked at most
		{model.TCP, mute, candidates{}, candidates{mute}},
		{model.TCP, mute, candidates{n2, n3, n4}, candidates{mute, n2, n3}},
		{model.TCP, dead, candidates{n2}, candidates{n2}},
		{model.TCP, unknownNode, candidates{n2, mute}, candidates{n2, mute}},
		{model.UDP, n2, candidates{}, candidates{n2}},
		{model.UDP, n2, candidates{n3}, candidates{n3}},
		{model.UDP, n2, candidates{dead}, candidates{}},
		{model.UDP, n2, candidates{unknownNode}, candidates{}},
		{model.UDP, thisNode, candidates{n3}, candidates{n3}},
	} {
		r := &handover{handoverKey: handoverKey{table: &slotTable{slots: []nodeNumber{tt.owner}}, handoverKind: handoverKind{protocol: tt.protocol}},
			formerly: []candidates{tt.formerly}}
		if got := r.others(0, f); got != tt.want {
			t.Errorf("%s of a slot of %d, formerly %v: asked are %v, not %v", tt.protocol, tt.owner, tt.formerly, got, tt.want)
		}
		if r.formerly = nil; tt.formerly == (candidates{}) && tt.protocol == model.UDP && r.others(0, f) != (candidates{}) {
			t.Error("where nothing is remembered the table of slots says who is asked")
		}
	}
}

// BenchmarkDirect has 100 Services of two ports with direct return in both families among four nodes: the start, a node
// that leaves one of them, and one that can no longer be used.
func BenchmarkDirect(b *testing.B) {
	const services = 100
	fixture := func(changed int) *dataplane.Direct {
		all := manyDirect(services, func(i int) []string {
			if i == changed {
				return []string{"n1", "n2", "n3"}
			}
			return []string{"n1", "n2", "n3", "n4"}
		})
		for k := range all.Changed {
			if changed >= 0 && all.Frontends[k].Service.Name != fmt.Sprint("s", changed) {
				delete(all.Changed, k)
			}
		}
		return all
	}
	for b.Loop() {
		k := newKernel(b)
		d := k.dataplane()
		at := time.Now()
		d.clock = func() time.Time { return at }
		took := func(unit string, settings *dataplane.Direct) {
			begin := time.Now()
			if err := d.Direct(b.Context(), settings); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(time.Since(begin).Milliseconds()), unit)
		}
		took("ms/start", fixture(-1))
		at = at.Add(dataplane.DirectDelay)
		begins := fixture(-1)
		begins.Changed = nil
		took("ms/begin", begins)
		took("ms/change", fixture(0))
		gone := fixture(-1)
		gone.Changed, gone.Peers[0].IPv4.Usable, gone.Peers[0].IPv6.Usable = nil, false, false
		took("ms/unusable", gone)
		b.ReportMetric(float64(strings.Count(k.nft("", "list ruleset"), " : 192.0.2.")), "IPv4-elements")
	}
}
