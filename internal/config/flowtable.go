package config

import (
	"fmt"

	"sluice/internal/dataplane"
)

// ownFlowTable is the field of --flow-table.
const ownFlowTable = "flowTable"

// flowTable applies the flag of flow tables, or the field of the file as it is now.
func (f *Flags) flowTable(s *Settings, n *notes) {
	text, field := f.FlowTable, "--"+flagFlowTable
	if f.ownTaken && !f.set.Changed(flagFlowTable) {
		text, field = s.Own[ownFlowTable], ownSection+"."+ownFlowTable
	}
	if text == "false" { // what YAML makes of off
		text = string(dataplane.FlowTableOff)
	}
	table, err := dataplane.ParseFlowTable(text)
	switch {
	case err != nil:
		n.fail("", fmt.Sprintf("%s: %v", field, err), "use off, outside, outside: with the name of a device, as in outside:eth0, or devices")
	case table.On() && !s.Mode.Configuration.FlowTables:
		n.fail("", fmt.Sprintf("%s: not in %s mode", field, s.Mode.Name), "leave it out, or set --proxy-mode to nftables")
	default:
		s.FlowTable = table
		s.Plan.PrimaryIPs = s.Plan.PrimaryIPs || table.NeedsNodeAddress()
	}
}
