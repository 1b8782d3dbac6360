package iptables

import (
	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
)

// Detect finds the chains of iptables mode, ours and upstream's, unless they are those of upstream's
// ipvs mode.
func Detect(i *dataplane.Inventory) (d dataplane.Detection) {
	if !i.HasChain(iptables.IPVSChains.Has) {
		d.Traces = i.ChainTraces(nat, servicesChain)
	}
	return d
}
