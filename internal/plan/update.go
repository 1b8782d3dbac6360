package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/base/prefetch"
	"sluice/internal/model"
)

// update is one step from a Desired to the next. Services are planned first;
// then everything they touched is settled once, so that what moves from one
// Service to another within a step is one difference.
type update struct {
	*Planner
	state  *model.State
	change *Change

	// What has to be settled.
	keys       []Key
	newIPs     []netip.Addr // ClusterIPs, once for each Service that got it
	lostIPs    []netip.Addr // once for each Service that released it
	checkPorts []uint16
	touched    []*claimant // their reports and health checks
	reported   map[model.Object]report
	// nodePortsMoved says that the addresses of node ports are others than before.
	nodePortsMoved bool
}

func newUpdate(p *Planner, state *model.State) *update {
	p.updates++
	return &update{
		Planner:  p,
		state:    state,
		change:   &Change{Revision: state.Revision()},
		reported: map[model.Object]report{},
	}
}

// planNode plans what does not belong to a Service.
func (u *update) planNode() {
	settings := planSettings(&u.cfg, u.state)
	u.nodePortsMoved = !slices.Equal(settings.NodePortIPs, u.desired.Settings.NodePortIPs)
	if !u.planned || !settings.same(&u.desired.Settings) {
		u.desired.Settings = settings
		u.change.Settings = &settings
	}
	u.env = newEnvironment(&u.cfg, u.state, &settings)
	u.env.maglevTables, u.env.directTables = u.maglevTables, u.directTables
	if invalid := u.state.Invalid(); !slices.Equal(u.desired.Invalid, invalid) {
		u.desired.Invalid, u.change.Problems = invalid, true
	}
	u.desired.Eligibility = eligibility(&u.cfg, u.state.Node())
	reports := nodeReports(&u.cfg, u.state)
	u.publish(u.nodeReports, reports)
	u.nodeReports = reports
}

// shareTables decides anew which Services get lookup tables, if one of these wants others than
// before, and returns them with all to which that makes a difference.
func (u *update) shareTables(names []model.Name) []model.Name {
	var also []model.Name
	for _, budget := range []*tableBudget{u.maglevTables, u.directTables} {
		changed := false
		for _, name := range names {
			changed = budget.set(&u.env, name, u.state.Service(name)) || changed
		}
		if changed {
			also = append(also, budget.settle()...)
		}
	}
	if len(also) == 0 {
		return names
	}
	slices.SortFunc(names, model.Name.Compare)
	for _, name := range also {
		if at, listed := slices.BinarySearchFunc(names, name, model.Name.Compare); !listed {
			names = slices.Insert(names, at, name)
		}
	}
	return names
}

// chunkSize is how many Services are planned at a time.
const chunkSize = 512

// planned is a Service and its new plan.
type planned struct {
	name   model.Name
	object *model.Service // nil when the Service is gone
	plan   servicePlan
}

// planServices plans Services, each of which is named once. If there are many,
// one processor plans while another one exchanges claims.
func (u *update) planServices(names []model.Name) {
	chunks := func(yield func([]planned) bool) {
		for some := range slices.Chunk(names, chunkSize) {
			plans := make([]planned, len(some))
			for i, name := range some {
				plans[i].name = name
				if svc := u.state.Service(name); svc != nil {
					plans[i].object = svc
					plans[i].plan = planService(&u.env, svc, u.state.Slices(name), u.state.Ejected(name), &u.work, u.rostersOf(name))
				} else {
					delete(u.rosters, name)
				}
			}
			if !yield(plans) {
				return
			}
		}
	}
	if len(names) > chunkSize {
		chunks = prefetch.Seq(chunks)
	}
	for plans := range chunks {
		for i := range plans {
			u.take(&plans[i])
		}
	}
}

// rostersOf returns those that are kept of a Service, nil for none.
func (u *update) rostersOf(name model.Name) *rosters {
	switch kept := u.rosters[name]; {
	case !have(u.state.Slices(name), u.many):
		delete(u.rosters, name)
		return nil
	case kept == nil:
		kept = &rosters{of: map[rosterKey]*roster{}}
		u.rosters[name] = kept
		return kept
	default:
		return kept
	}
}

// take replaces the plan of a Service.
func (u *update) take(p *planned) {
	c := u.services[p.name]
	switch {
	case c == nil && p.object == nil:
		return
	case c == nil:
		c = &claimant{object: p.object}
		u.services[p.name] = c
	case p.object == nil:
		delete(u.services, p.name)
	case !c.object.Created.Equal(p.object.Created):
		// Claims are sorted by precedence, which has changed.
		u.replace(c, servicePlan{})
	}
	u.touch(c)
	if p.object != nil {
		c.object = p.object
	}
	u.replace(c, p.plan)
}

// touch marks the reports and the health check of a Service to be settled.
func (u *update) touch(c *claimant) {
	if c.touched != u.updates {
		c.touched = u.updates
		u.touched = append(u.touched, c)
	}
}

// replace exchanges the claims of a Service for those of a new plan.
func (u *update) replace(c *claimant, plan servicePlan) {
	old := c.plan
	c.plan = plan
	u.replaceFrontends(c, old.frontends, plan.frontends)
	if !slices.Equal(old.clusterIPs, plan.clusterIPs) {
		u.lostIPs = append(u.lostIPs, old.clusterIPs...)
		u.newIPs = append(u.newIPs, plan.clusterIPs...)
	}
	if port := old.healthPort; port != 0 {
		u.healthChecks.release(port, c)
		u.checkPorts = append(u.checkPorts, port)
	}
	if port := plan.healthPort; port != 0 {
		u.healthChecks.set(port, c, HealthCheck{
			Service: c.name(), Port: port, LocalEndpoints: plan.localEndpoints, LocalIPv6: plan.localIPv6,
			IPv4: plan.ipv4, IPv6: plan.ipv6,
		})
		u.checkPorts = append(u.checkPorts, port)
	}
}

// replaceFrontends replaces claims of frontends, of which both lists are sorted. A
// frontend that did not change keeps its old pointer and is not touched.
func (u *update) replaceFrontends(c *claimant, gone, come []*Frontend) {
	for old, new := range Merge(gone, come, func(a, b *Frontend) int { return a.Key.Compare(b.Key) }) {
		switch {
		case new == nil:
			u.frontends.release((*old).Key, c)
			u.keys = append(u.keys, (*old).Key)
		case old != nil && (*old).same(*new):
			*new = *old
		default:
			u.frontends.set((*new).Key, c, *new)
			u.keys = append(u.keys, (*new).Key)
		}
	}
}
