package iptables

import (
	"context"
	"maps"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
)

// Stats are numbers for metrics.
type Stats struct {
	// Rules is how many rules of ours each table has, Written how many the last
	// commit wrote.
	Rules, Written map[iptables.Table]int
	// RestoreFailures and PartialRestoreFailures count failed runs of
	// iptables-restore since the start, of reconciles and of changes.
	RestoreFailures, PartialRestoreFailures map[model.Family]uint64
}

// Stats returns the current numbers.
func (d *Dataplane) Stats() Stats {
	out := Stats{Rules: map[iptables.Table]int{}, Written: map[iptables.Table]int{}}
	d.locked(func() {
		for _, s := range d.states {
			for _, t := range s.tables[:2] {
				out.Rules[t.Table], out.Written[t.Table] = t.rules(), t.written
			}
		}
		out.RestoreFailures, out.PartialRestoreFailures = maps.Clone(d.failures), maps.Clone(d.partialFailures)
	})
	return out
}

// InvalidDropped returns how many packets were dropped because conntrack considers
// them invalid, and false if the kernel does not count them.
func (d *Dataplane) InvalidDropped(context.Context) (uint64, bool) {
	var counted bool
	d.locked(func() { counted = d.features.NFAcct })
	if !counted {
		return 0, false
	}
	n, err := iptables.ReadCounter(d.netns, invalidCounter)
	return n, err == nil
}
