//go:build linux

package nftables

import (
	"slices"
	"strings"

	"sluice/internal/dataplane"
)

// Detect finds the tables of nftables mode, upstream's and ours.
func Detect(i *dataplane.Inventory) (d dataplane.Detection) {
	for _, full := range i.TableNames() {
		switch _, name, _ := strings.Cut(full, " "); {
		case name == upstreamTable:
			d.Traces = append(d.Traces, "table "+full)
		case slices.Contains(tableNames[:], name), name == witnessTableOf(""), name == loopbackTableOf(""), name == directTableOf(""), name == flowTableOf(""):
			d.Traces = append(d.Traces, "table "+full+" of Sluice")
		}
	}
	return d
}
