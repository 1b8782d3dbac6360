package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sluice/internal/answer/control"
	"sluice/internal/answer/diff"
	"sluice/internal/answer/question"
	"sluice/internal/base/printable"
	"sluice/internal/config"
	"sluice/internal/engine"
	"sluice/internal/kernel/sysctl"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/source/manifest"
)

var errNotSynced = errors.New("the proxy does not know yet what there is, it waits for its sources: ask again later")

// previewer computes what a proposal would change. It works on copies and does not
// block the proxy.
type previewer struct {
	*proxy
	// mu allows one preview at a time: each takes memory for a plan.
	mu sync.Mutex
}

func (p *previewer) preview(_ context.Context, new *question.Proposal) (*diff.Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.engine.Status().Synced {
		return nil, errNotSynced
	}
	later, err := p.configured(new.Config)
	if err != nil {
		return nil, control.BadRequest(err)
	}
	state, now := p.present()
	var content *manifest.Content
	if new.Manifests != nil {
		content = manifest.LoadFiles(new.Manifests, ReadFor(later.Settings), state)
		if new.Add {
			state.Apply(&model.Dirty{}, content.Events...) // a copy
		} else {
			state = p.given(content, state)
		}
	}
	desired := PlanAll(later.Plan, state)
	report := diff.Compare(now, desired)
	if later.restart != "" {
		report.WaitFor(later.restart, diff.Compare(now, PlanAll(later.atOnce, state)))
	}
	report.Configuration = later.changes
	if content != nil {
		known := map[model.Problem]bool{}
		for _, problem := range append(diff.Problems(now), now.Invalid...) {
			known[problem] = true
		}
		report.Problems, report.NewProblems = ProblemsOf(content, desired, known)
	}
	for _, w := range later.Warnings {
		if report.Problems = append(report.Problems, w.String()); !slices.Contains(later.known, w) {
			report.NewProblems = append(report.NewProblems, w.String())
		}
	}
	return report, nil
}

// prospect is what another configuration file means for the proxy.
type prospect struct {
	// Settings are those of a proxy that starts with the file.
	*config.Settings
	atOnce  plan.Config     // what is planned without a restart
	restart string          // why there is more to it than that, if there is
	known   []model.Problem // warnings about the configuration in force
	changes []diff.Change
}

// configured returns what another configuration file means; without one, what is in force.
func (p *previewer) configured(file []byte) (*prospect, error) {
	inForce := p.servers.settings.Load()
	if file == nil {
		same := *inForce
		same.Warnings = nil
		return &prospect{Settings: &same}, nil
	}
	update, err := p.options.Flags.Update(file, inForce)
	if err != nil {
		return nil, err
	}
	asked := *update.Asked
	out := &prospect{Settings: &asked, atOnce: update.InForce.Plan, known: inForce.Warnings}
	if sysctl.TCPIsLiberal(sysctl.Options{Logger: p.logger.WithName("host")}) {
		asked.Plan.DropInvalid, out.atOnce.DropInvalid = false, false
	}
	if len(update.Restart) > 0 {
		out.restart = "it follows from " + printable.List(update.Restart, func(c config.Change) string { return c.Field })
	}
	if update.Blocked != nil {
		out.restart = fmt.Sprintf("nothing of the file can take effect before: %v", update.Blocked)
	}
	live, _ := config.Compare(inForce, update.Asked)
	for _, c := range append(live, update.Restart...) {
		if c.Restart == "" && !slices.Contains(update.Live, c) {
			c.Restart = out.restart
		}
		out.changes = append(out.changes, diff.Change{What: c.Field, Old: c.Old, New: c.New, Restart: c.Restart})
	}
	return out, nil
}

// present returns copies of the state and of what is planned from it.
func (p *previewer) present() (state *model.State, now *plan.Desired) {
	p.engine.Inspect(func(v engine.View) {
		state = v.State.Clone()
		desired := *v.Desired
		desired.Frontends = maps.Clone(desired.Frontends)
		desired.ClusterIPs = maps.Clone(desired.ClusterIPs)
		desired.HealthChecks = maps.Clone(desired.HealthChecks)
		now = &desired
	})
	return state, now
}

// given returns the state with these manifests. The machine stays as it is. So do
// the Node and the service CIDRs if they are from an API server, unless the
// manifests have others.
func (p *previewer) given(content *manifest.Content, now *model.State) *model.State {
	state, dirty := model.NewState(), &model.Dirty{}
	state.Apply(dirty, content.Events...)
	state.Apply(dirty, model.SetHostIPs{IPs: now.HostIPs()})
	if p.client == nil {
		return state
	}
	if state.Node() == nil && now.Node() != nil {
		state.Apply(dirty, model.SetNode{Node: now.Node()})
	}
	if len(state.ServiceCIDRs()) == 0 {
		for _, c := range now.ServiceCIDRs() {
			state.Apply(dirty, model.SetServiceCIDR{ServiceCIDR: c})
		}
	}
	return state
}

// PlanAll plans a state from scratch.
func PlanAll(cfg plan.Config, state *model.State) *plan.Desired {
	planner := plan.New(cfg)
	planner.Update(state, &model.Dirty{All: true})
	return planner.Desired()
}

// ProblemsOf returns the problems of manifests: those found when they were read,
// with file and line, and those found when they were planned. Fresh are those of them
// that are not known.
func ProblemsOf(content *manifest.Content, desired *plan.Desired, known map[model.Problem]bool) (all, fresh []string) {
	add := func(text string, known bool) {
		if all = append(all, text); !known {
			fresh = append(fresh, text)
		}
	}
	read := map[model.Problem]bool{}
	for _, p := range content.Problems {
		read[p.Problem] = true
		add(p.String(), known[p.Problem] || known[p.Placed()])
	}
	for _, p := range diff.Problems(desired) {
		if !read[p] {
			add(p.String(), known[p])
		}
	}
	return all, fresh
}
