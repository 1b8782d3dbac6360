package iptables

import (
	"context"
	"maps"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
)

// Count implements dataplane.Counter.
func (d *Dataplane) Count(_ context.Context, families []model.Family, add func(metric string, value float64, labels ...string)) {
	type size struct{ total, last int }
	sizes := map[iptables.Table]size{}
	var failures, partialFailures map[model.Family]uint64
	var counted bool
	d.locked(func() {
		for _, s := range d.states {
			for _, t := range s.tables {
				sizes[t.Table] = size{t.rules(), t.written}
			}
		}
		failures, partialFailures, counted = maps.Clone(d.failures), maps.Clone(d.partialFailures), d.features.NFAcct
	})
	for _, f := range families {
		for _, name := range []string{nat, filter} { // as upstream
			n := sizes[iptables.Table{Family: f, Name: name}]
			add(rulesTotal, float64(n.total), name, f.String())
			add(rulesLast, float64(n.last), name, f.String())
		}
		add(restoreFailures, float64(failures[f]), f.String())
		add(partialRestoreFailures, float64(partialFailures[f]), f.String())
	}
	if !counted {
		return
	}
	if dropped, err := iptables.ReadCounter(d.netns, invalidCounter); err == nil {
		add(invalidDropped, float64(dropped))
	}
}
