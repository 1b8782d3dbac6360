package check

import (
	"context"
	"slices"

	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/mode"
	"sluice/internal/model"
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/plan"
)

// Options configures Run.
type Options struct {
	Settings *config.Settings
	// ModeReason is why the mode is that of the settings, "" if it was chosen.
	ModeReason string
	// State is what the cluster, or a directory of manifests, holds.
	State *model.State
	// Refused are the manifests that would not be used.
	Refused []model.Problem
	// Try allows to load kernel modules, to find out whether the kernel takes the rules.
	Try bool
}

// Run checks a node.
func Run(ctx context.Context, o Options) *Report {
	r := &Report{Node: o.Settings.Plan.NodeName, Mode: o.Settings.Mode.Name, Services: len(o.State.Services())}
	o.Settings.Plan.NoIPv6 = lacksIPv6()
	planner := plan.New(o.Settings.Plan)
	planner.Update(o.State, &model.Dirty{All: true})
	desired := planner.Desired()

	r.checkNode(ctx, &o, desired)
	r.checkConfiguration(&o)
	r.checkServices(&o, desired)
	return r
}

func (r *Report) checkConfiguration(o *Options) {
	s, state := o.Settings, o.State
	if o.ModeReason != "" {
		r.add(Note, "mode", "", "%s", o.ModeReason)
	}
	for _, w := range s.Warnings {
		r.add(Todo, "configuration", w.Remedy, "%s", w.What())
	}
	r.addAll(Todo, nodeproblem.NodeName(&s.Plan, state))
	r.addAll(Todo, nodeproblem.ClusterCIDR(&s.Plan, state))
	for _, n := range s.Notes {
		r.add(Note, "configuration", n.Remedy, "%s", n.What())
	}
	if len(s.Warnings) == 0 {
		r.add(Fine, "configuration", "", "it is valid, and has no unknown fields")
	}
}

// replaces reports whether rules of such a mode are on the node.
func (r *Report) replaces(such func(dataplane.Mode) bool) bool {
	return slices.ContainsFunc(r.InPlace, func(name string) bool {
		m, known := mode.Find(name)
		return known && such(m)
	})
}
