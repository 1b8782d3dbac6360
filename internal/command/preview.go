package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"sluice/internal/config"
	"sluice/internal/control"
	"sluice/internal/diff"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/source/manifest"
	"sluice/internal/sysctl"
)

const (
	// mostPreviewBytes limits the files of a preview, and mostPreviewBody the request
	// that contains them in base64.
	mostPreviewBytes = 64 << 20
	mostPreviewBody  = mostPreviewBytes/3*4 + mostPreviewBytes/64
)

// proposal is what the proxy might be given: other manifests, another configuration
// file, or both. What is absent stays as it is.
type proposal struct {
	Manifests []manifest.File `json:"manifests"`
	// Add says that the manifests are added to what there is, instead of replacing it.
	Add    bool   `json:"add"`
	Config []byte `json:"config"`
}

var errNotSynced = errors.New("the proxy does not know yet what there is, it waits for its sources: ask again later")

// previewer computes what a proposal would change. It works on copies and does not
// block the proxy.
type previewer struct {
	*proxy
	// mu allows one preview at a time: each takes memory for a plan.
	mu sync.Mutex
}

func (p *previewer) preview(_ context.Context, new *proposal) (*diff.Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.engine.Status().Synced {
		return nil, errNotSynced
	}
	later, configuration, err := p.configured(new.Config)
	if err != nil {
		return nil, control.BadRequest(err)
	}
	state, now := p.present()
	var content *manifest.Content
	if new.Manifests != nil {
		content = manifest.LoadFiles(new.Manifests, later.Plan.NodeName, state)
		if new.Add {
			state.Apply(&model.Dirty{}, content.Events...) // a copy
		} else {
			state = p.given(content, state)
		}
	}
	desired := planAll(later.Plan, state)
	report := diff.Compare(now, desired)
	report.Configuration = configuration
	if content != nil {
		report.Problems = problemsOf(content, desired)
	}
	for _, w := range later.Warnings {
		report.Problems = append(report.Problems, w.String())
	}
	return report, nil
}

// configured returns the settings that would be in force with another configuration
// file, and what it changes; without one, those in force.
func (p *previewer) configured(file []byte) (*config.Settings, []diff.Change, error) {
	inForce := p.servers.settings.Load()
	if file == nil {
		same := *inForce
		same.Warnings = nil
		return &same, nil, nil
	}
	update, err := p.options.flags.Update(file, inForce)
	if err != nil {
		return nil, nil, err
	}
	if update.Blocked != nil {
		return nil, nil, fmt.Errorf("none of it can take effect before a restart: %w", update.Blocked)
	}
	later := *update.InForce
	later.Warnings = update.Asked.Warnings
	if sysctl.TCPIsLiberal(sysctl.Options{Logger: p.logger.WithName("host")}) {
		later.Plan.DropInvalid = false
	}
	var out []diff.Change
	for _, c := range append(update.Live, update.Restart...) {
		out = append(out, diff.Change{What: c.Field, Old: c.Old, New: c.New, Restart: c.Restart})
	}
	return &later, out, nil
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
