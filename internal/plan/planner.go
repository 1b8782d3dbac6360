package plan

import (
	"net/netip"

	"sluice/internal/model"
)

// Planner keeps a Desired up to date. It has no lock: one goroutine owns it.
type Planner struct {
	cfg     Config
	planned bool // there was an update
	env     environment
	desired Desired

	services map[model.Name]*servicePlan
	// What Services claim, each by what they can collide on.
	frontends    claims[Key, *Frontend]
	healthChecks claims[uint16, HealthCheck]
	// clusterIPs counts the Services that have each.
	clusterIPs map[netip.Addr]int

	// What was reported, by Service, and for the objects that are no Service's.
	reports     map[model.Name][]report
	nodeReports []report

	work candidates
}

// New returns a Planner that has planned nothing yet.
func New(cfg Config) *Planner {
	return &Planner{
		cfg: cfg,
		desired: Desired{
			Frontends:    map[Key]*Frontend{},
			ClusterIPs:   map[netip.Addr]struct{}{},
			HealthChecks: map[model.Name]HealthCheck{},
			Problems:     map[string][]model.Problem{},
		},
		services:     map[model.Name]*servicePlan{},
		frontends:    claims[Key, *Frontend]{},
		healthChecks: claims[uint16, HealthCheck]{},
		clusterIPs:   map[netip.Addr]int{},
		reports:      map[model.Name][]report{},
	}
}

// Desired returns what the last update led to. It is the Planner's own and
// changes with the next update; the frontends in it are immutable.
func (p *Planner) Desired() *Desired { return &p.desired }

// Update plans again what is dirty and returns the difference. The first call
// plans everything.
func (p *Planner) Update(state *model.State, dirty *model.Dirty) *Change {
	if !p.planned {
		return p.SetConfig(state, p.cfg)
	}
	u := newUpdate(p, state)
	if dirty.Node {
		before := p.env
		u.planNode()
		for name, s := range p.services {
			if p.env.concerns(s.service, &before) {
				u.planService(name)
			}
		}
	}
	for name := range dirty.Services {
		u.planService(name)
	}
	return u.finish()
}

// SetConfig plans everything again, under another configuration, and returns
// the difference.
func (p *Planner) SetConfig(state *model.State, cfg Config) *Change {
	p.cfg = cfg
	u := newUpdate(p, state)
	u.planNode()
	for name := range p.services {
		u.planService(name)
	}
	for name := range state.Services() {
		u.planService(name)
	}
	p.planned = true
	return u.finish()
}
