//go:build linux

package nftables

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// offload makes flow tables, and skips the test if the kernel has none: nothing may be left of them then.
func (k *kernel) offload(d *Dataplane, want *dataplane.Offload) (devices []string) {
	k.t.Helper()
	devices, err := d.Offload(k.t.Context(), want)
	if errors.Is(err, dataplane.ErrNoFlowTables) {
		if rules := k.nft("", "list", "ruleset"); rules != "" {
			k.t.Fatalf("a kernel without flow tables has\n%s", rules)
		}
		k.t.Skip(err)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return devices
}

func (k *kernel) flowTable(family string) string {
	k.t.Helper()
	return k.nft("", "list", "table", family, "sluice-flow")
}

// What a kernel has of flow tables depends on what is wanted, and not on how that came about.
func TestFlowTable(t *testing.T) {
	k := newKernel(t)
	k.ns.Run(t, "", "ip", "link", "add", "out0", "type", "veth", "peer", "name", "peer0")
	k.ns.Run(t, "", "ip", "link", "add", "out1", "type", "veth", "peer", "name", "peer1")
	frontends := map[plan.Key]bool{
		key("10.96.0.1:80", model.TCP): true, key("10.96.0.1:53", model.UDP): true, key("10.96.0.1:99", model.SCTP): true,
		key("0.0.0.0:30080", model.TCP): true, key("[fd00:10:96::1]:80", model.TCP): true, key("[::]:30080", model.TCP): true,
	}
	ranges := []plan.Key{key("10.96.0.2:1000", model.UDP), key("10.96.0.2:3000", model.UDP)}
	ranges[0].Last, ranges[1].Last = 2000, 4000
	for _, r := range ranges {
		frontends[r] = true
	}
	both := func(changed map[plan.Key]bool, devices ...string) *dataplane.Offload {
		return &dataplane.Offload{Families: model.Families[:], Devices: devices, Changed: changed}
	}
	d := k.dataplane()
	if in := k.offload(d, both(frontends, "out0", "absent", "out1", "out0")); !slices.Equal(in, []string{"out0", "out1"}) {
		t.Errorf("the devices are %q", in)
	}
	for _, part := range []string{
		"hook ingress priority filter", "counter", "iifname @flow-devices ct status", "ct packets > 20 jump services",
		"ct original ip daddr . ct protocol . ct original proto-dst @frontends flow add @flows",
		"10.96.0.1 . tcp . 80", "10.96.0.1 . udp . 53", "tcp . 30080", "10.96.0.2 . udp",
	} {
		if table := k.flowTable("ip"); !strings.Contains(table, part) {
			t.Errorf("%q is not in\n%s", part, table)
		}
	}
	if table := k.flowTable("ip"); strings.Contains(table, "sctp") {
		t.Errorf("connections are offloaded that the kernel cannot offload:\n%s", table)
	}
	// A range that goes leaves another one of its address.
	k.offload(d, both(map[plan.Key]bool{ranges[0]: false}, "out0"))
	before := k.flowTable("ip")
	if !strings.Contains(before, "10.96.0.2 . udp") || strings.Contains(before, "out1") {
		t.Errorf("there is\n%s", before)
	}
	delete(frontends, ranges[0])

	handles := k.nft("", "-a", "list", "table", "ip", "sluice-flow")
	k.offload(k.dataplane(), both(frontends, "out0"))
	if now := k.nft("", "-a", "list", "table", "ip", "sluice-flow"); now != handles {
		t.Errorf("another process makes of\n%s\nthis:\n%s", handles, now)
	}
	for _, damage := range []string{
		"flush chain ip sluice-flow services", "delete table ip sluice-flow", "flush set ip sluice-flow frontends", "flush set ip sluice-flow flow-devices",
		"add rule ip sluice-flow forward drop", "add table ip sluice-flow { flags dormant; }",
	} {
		k.nft(damage, "-f", "-")
		k.offload(d, both(nil, "out0"))
		if now := k.flowTable("ip"); now != before {
			t.Errorf("after %s there is\n%s\nwant\n%s", damage, now, before)
		}
	}
	k.ns.Run(t, "", "ip", "link", "set", "out0", "name", "out2")
	k.ns.Run(t, "", "ip", "link", "del", "out1")
	if in := k.offload(d, both(nil, "out2", "out1")); !slices.Equal(in, []string{"out2"}) {
		t.Errorf("after a device was renamed they are %q", in)
	}
	k.offload(d, &dataplane.Offload{Families: []model.Family{model.IPv4}})
	if rules := k.nft("", "list", "ruleset"); strings.Contains(rules, "table ip6") || !strings.Contains(rules, "table ip sluice-flow") {
		t.Errorf("of one family there is\n%s", rules)
	}
	k.offload(d, &dataplane.Offload{})
	if rules := k.nft("", "list", "ruleset"); rules != "" {
		t.Errorf("nothing is wanted, and there is\n%s", rules)
	}
	k.offload(d, both(frontends, "out2"))
	k.remove()
	if rules := k.nft("", "list", "ruleset"); rules != "" {
		t.Errorf("after the removal there is\n%s", rules)
	}
}

// More devices than fit into a message are followed, up to what the kernel has room for.
func TestFlowTableHasManyDevices(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	k.offload(d, &dataplane.Offload{Families: []model.Family{model.IPv4}})
	devices := testkit.Extent(70, 70, maxFlowDevices+1)
	var commands, names []string
	for i := range devices {
		names = append(names, fmt.Sprintf("device-%03d", i))
		commands = append(commands, "link add "+names[i]+" type dummy")
	}
	k.ns.Run(t, strings.Join(commands, "\n"), "ip", "-batch", "-")
	in, err := d.Offload(t.Context(), &dataplane.Offload{Families: []model.Family{model.IPv4}, Devices: names})
	if len(in) != min(devices, maxFlowDevices) || (err == nil) != (devices <= maxFlowDevices) {
		t.Errorf("%d of %d devices, %v", len(in), devices, err)
	}
	if in, err = d.Offload(t.Context(), &dataplane.Offload{Families: []model.Family{model.IPv4}, Devices: names[:2]}); len(in) != 2 || err != nil {
		t.Errorf("%d devices instead of 2, %v", len(in), err)
	}
}
