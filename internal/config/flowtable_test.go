package config

import (
	"strings"
	"testing"

	"sluice/internal/dataplane"
)

func TestFlowTable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"off": "off", "": "off", "false": "off", "outside": "outside", "outside:eth0.100": "outside:eth0.100", "devices": "devices",
		"on": `"on": not a value`, "devices:eth0": "not a value", "outside:": "not a value", "outside:sixteen-letters0": "not a value", "outside:a b": "not a value",
	} {
		_, _, s, err := fromFile(t, ownFile, "--flow-table="+text)
		switch {
		case err != nil && (!strings.Contains(err.Error(), "use off, outside") || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", text, err)
		case err == nil && s.FlowTable.String() != want:
			t.Errorf("%q is %v, want %s", text, s.FlowTable, want)
		case err == nil && s.Plan.PrimaryIPs != (want == "outside" || want == "devices"):
			t.Errorf("%q: the addresses of the node are known: %t", text, s.Plan.PrimaryIPs)
		}
	}
}

// A running proxy follows the file, but not beyond the command line.
func TestFlowTableIsFollowed(t *testing.T) {
	t.Parallel()
	const file = ownFile
	f, _, s, err := fromFile(t, file+"sluice: {flowTable: outside}\n")
	if err != nil || s.FlowTable.Scope != dataplane.FlowTableOutside {
		t.Fatalf("%+v, %v", s.FlowTable, err)
	}
	for text, want := range map[string]string{"sluice: {flowTable: devices, serviceProxyName: other}\n": "devices", "sluice: {flowTable: off}\n": "off", "": "off"} {
		u, err := f.Update([]byte(file+text), s)
		if err != nil || u.InForce.FlowTable.String() != want || len(u.Live) != 1 || u.Live[0].Field != "sluice.flowTable" {
			t.Errorf("%q: %+v, %v", text, u, err)
		}
	}
	if _, err := f.Update([]byte(file+"sluice: {flowTable: inside}\n"), s); err == nil || !strings.Contains(err.Error(), `sluice.flowTable: "inside"`) {
		t.Error(err)
	}
	if _, err := f.Update([]byte(strings.Replace(ownFile, "nftables", "iptables", 1)+"sluice: {flowTable: outside}\n"), s); err == nil || !strings.Contains(err.Error(), "not in iptables mode") {
		t.Error(err)
	}
	f, _, s, err = fromFile(t, file+"sluice: {flowTable: outside}\n", "--flow-table=devices")
	if err != nil {
		t.Fatal(err)
	}
	if u, err := f.Update([]byte(file+"sluice: {flowTable: off}\n"), s); err != nil || u.InForce.FlowTable.Scope != dataplane.FlowTableDevices || len(u.Live) > 0 {
		t.Errorf("%+v, %v", u, err)
	}
}
