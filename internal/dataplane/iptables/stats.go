package iptables

import (
	"context"

	"sluice/internal/model"
)

// Stats are numbers for metrics.
type Stats struct {
	// Rules are how many rules of ours each table holds, Written how many the
	// last change wrote.
	Rules, Written map[Table]int
	// RestoreFailures and PartialRestoreFailures count the runs of
	// iptables-restore that failed since the start: those of a reconcile and
	// those of a change.
	RestoreFailures, PartialRestoreFailures map[model.Family]uint64
}

// counts are what Stats is made of besides the tables.
type counts struct {
	failures, partialFailures map[model.Family]uint64
}

func newCounts() counts {
	return counts{map[model.Family]uint64{}, map[model.Family]uint64{}}
}

// Stats returns the numbers of now.
func (d *Dataplane) Stats() Stats {
	s := Stats{
		Rules: map[Table]int{}, Written: map[Table]int{},
		RestoreFailures: map[model.Family]uint64{}, PartialRestoreFailures: map[model.Family]uint64{},
	}
	d.note(func() {
		for _, side := range d.sides {
			for _, t := range side.tables[:2] {
				s.Rules[t.Table], s.Written[t.Table] = t.rules(), t.written
			}
		}
		for _, f := range model.Families {
			s.RestoreFailures[f] = d.stats.failures[f]
			s.PartialRestoreFailures[f] = d.stats.partialFailures[f]
		}
	})
	return s
}

// InvalidDropped counts the packets that were dropped because connection
// tracking could make nothing of them. It is false where the kernel does not
// count them.
func (d *Dataplane) InvalidDropped(context.Context) (uint64, bool) {
	var can bool
	d.note(func() { can = d.features.accounting })
	if !can {
		return 0, false
	}
	n, err := readCounter(d.netns, invalidCounter)
	return n, err == nil
}
