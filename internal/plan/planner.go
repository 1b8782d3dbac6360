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
	p := &Planner{
		cfg: cfg,
		desired: Desired{
			HealthChecks: map[model.Name]HealthCheck{},
			Problems:     map[string][]model.Problem{},
		},
		healthChecks: claims[uint16, HealthCheck]{},
		reports:      map[model.Name][]report{},
	}
	p.makeRoom(0)
	return p
}

// makeRoom makes the maps that grow with the number of Services. Growing them
// bit by bit would take a good part of the time of planning very many.
func (p *Planner) makeRoom(services int) {
	p.desired.Frontends = make(map[Key]*Frontend, services)
	p.desired.ClusterIPs = make(map[netip.Addr]struct{}, services)
	p.services = make(map[model.Name]*servicePlan, services)
	p.frontends = make(claims[Key, *Frontend], services)
	p.clusterIPs = make(map[netip.Addr]int, services)
}

// Desired returns what the last update led to. It is the Planner's own and
// changes with the next update; the frontends in it are immutable.
func (p *Planner) Desired() *Desired { return &p.desired }

// Update plans again what is dirty and returns the difference. The first call
// plans everything.
func (p *Planner) Update(state *model.State, dirty *model.Dirty) *Change {
	if !p.planned {
		p.makeRoom(len(state.Services()))
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
