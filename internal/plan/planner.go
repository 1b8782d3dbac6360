package plan

import (
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Planner keeps a Desired up to date. It has no lock: one goroutine owns it.
type Planner struct {
	cfg     Config
	planned bool // Update or SetConfig was called
	env     environment
	desired Desired

	// updates counts the updates so far.
	updates  uint64
	services map[model.Name]*claimant
	// The claims of Services to what they can collide on.
	frontends    claims[Key, *Frontend]
	healthChecks claims[uint16, HealthCheck]
	// places are where ranges are claimed.
	places map[Key]*place
	// clusterIPs counts the Services that have each address.
	clusterIPs map[netip.Addr]int

	// Which Services get lookup tables, of which kind.
	maglevTables, directTables *tableBudget

	// nodeReports are those published for objects other than Services and
	// slices.
	nodeReports []report

	work workspace
	// rosters are kept of Services with very many endpoints.
	rosters map[model.Name]*rosters
	many    int // endpoints that such a Service has
}

// New returns a Planner that has planned nothing yet.
func New(cfg Config) *Planner {
	p := &Planner{
		cfg: cfg,
		desired: Desired{
			Ranges:       Ranges{},
			HealthChecks: map[model.Name]HealthCheck{},
			Problems:     map[model.Object][]model.Problem{},
			EventsOn:     map[model.Object]struct{}{},
		},
		healthChecks: claims[uint16, HealthCheck]{},
		places:       map[Key]*place{},
		maglevTables: newTableBudget(MaxMaglevTables, MaxMaglevTablesNode, maglevTables),
		directTables: newTableBudget(MaxDirectTables, MaxDirectTablesNode, directTables),
		rosters:      map[model.Name]*rosters{},
		many:         manyEndpoints,
	}
	p.allocate(0)
	return p
}

// allocate makes the maps that grow with the number of Services. Growing them
// step by step would take a good part of the time of planning very many.
func (p *Planner) allocate(services int) {
	p.desired.Frontends = make(map[Key]*Frontend, services)
	p.desired.ClusterIPs = make(map[netip.Addr]struct{}, services)
	p.desired.ExclusiveIPs = map[netip.Addr]int{}
	p.services = make(map[model.Name]*claimant, services)
	p.frontends = make(claims[Key, *Frontend], services)
	p.clusterIPs = make(map[netip.Addr]int, services)
}

// Desired returns the result of the last update. It is the Planner's own and
// changes with the next update; the frontends in it are immutable.
func (p *Planner) Desired() *Desired { return &p.desired }

// Update plans again what is dirty and returns the difference. The first call
// plans everything.
func (p *Planner) Update(state *model.State, dirty *model.Dirty) *Change {
	if !p.planned || dirty.All {
		return p.SetConfig(state, p.cfg)
	}
	u := newUpdate(p, state)
	names := slices.Collect(maps.Keys(dirty.Services))
	if dirty.Node {
		before := p.env
		u.planNode()
		for name, c := range p.services {
			if _, listed := dirty.Services[name]; !listed && p.env.concerns(c.object, &before) {
				names = append(names, name)
			}
		}
	}
	u.planServices(u.shareTables(names))
	return u.finish()
}

// SetConfig plans everything again with another configuration and returns the
// difference.
func (p *Planner) SetConfig(state *model.State, cfg Config) *Change {
	if !p.planned {
		p.allocate(len(state.Services()))
	}
	p.cfg = cfg
	u := newUpdate(p, state)
	u.planNode()
	names := make([]model.Name, 0, len(state.Services()))
	for name := range p.services {
		if state.Service(name) == nil {
			names = append(names, name)
		}
	}
	u.planServices(u.shareTables(slices.AppendSeq(names, maps.Keys(state.Services()))))
	p.planned = true
	return u.finish()
}
