package plan

import (
	"net/netip"
	"slices"

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
	addresses  []netip.Addr
	checkPorts []uint16
	touched    map[model.Name]struct{} // Services: their reports and health checks
	reported   map[string][]model.Problem
}

func newUpdate(p *Planner, state *model.State) *update {
	return &update{
		Planner:  p,
		state:    state,
		change:   &Change{Revision: state.Revision()},
		touched:  map[model.Name]struct{}{},
		reported: map[string][]model.Problem{},
	}
}

// planNode plans what is no Service's.
func (u *update) planNode() {
	settings := planSettings(&u.cfg, u.state)
	if !u.planned || !settings.same(&u.desired.Settings) {
		u.desired.Settings = settings
		u.change.Settings = &settings
	}
	u.env = newEnvironment(&u.cfg, u.state, &settings)
	reports := nodeReports(u.state)
	u.publish(u.nodeReports, reports)
	u.nodeReports = reports
}

// planService plans one Service, once in an update.
func (u *update) planService(name model.Name) {
	if _, done := u.touched[name]; done {
		return
	}
	u.touched[name] = struct{}{}

	old := u.services[name]
	svc := u.state.Service(name)
	if svc == nil {
		delete(u.services, name)
		u.replace(old, nil)
		return
	}
	plan := planService(&u.env, svc, u.state.Slices(name), &u.work)
	u.services[name] = plan
	if old != nil && old.claimant.compare(plan.claimant) != 0 {
		// Claims are found by precedence, and it is another one now.
		u.replace(old, nil)
		old = nil
	}
	u.replace(old, plan)
}

// replace exchanges the claims of one plan of a Service for those of another;
// either may be nil.
func (u *update) replace(old, plan *servicePlan) {
	if old == nil {
		old = &servicePlan{service: &model.Service{}}
	}
	if plan == nil {
		plan = &servicePlan{service: &model.Service{}}
	}
	u.replaceFrontends(old, plan)
	if !slices.Equal(old.clusterIPs, plan.clusterIPs) {
		u.countAddresses(old.clusterIPs, -1)
		u.countAddresses(plan.clusterIPs, +1)
	}
	if port := old.service.HealthCheckNodePort; port != 0 {
		u.healthChecks.release(port, old.claimant)
		u.checkPorts = append(u.checkPorts, port)
	}
	if port := plan.service.HealthCheckNodePort; port != 0 {
		u.healthChecks.set(port, plan.claimant, HealthCheck{plan.name, port, plan.localEndpoints, plan.localIPv6})
		u.checkPorts = append(u.checkPorts, port)
	}
}

// replaceFrontends walks both lists of frontends, sorted as they are. One that
// stays the same stays the old pointer and is not touched.
func (u *update) replaceFrontends(old, plan *servicePlan) {
	gone, come := old.frontends, plan.frontends
	for len(gone) > 0 || len(come) > 0 {
		switch order := compareFirst(gone, come); {
		case order < 0:
			u.frontends.release(gone[0].Key, old.claimant)
			u.keys = append(u.keys, gone[0].Key)
			gone = gone[1:]
		case order > 0:
			u.frontends.set(come[0].Key, plan.claimant, come[0])
			u.keys = append(u.keys, come[0].Key)
			come = come[1:]
		default:
			if gone[0].same(come[0]) {
				come[0] = gone[0]
			} else {
				u.frontends.set(come[0].Key, plan.claimant, come[0])
				u.keys = append(u.keys, come[0].Key)
			}
			gone, come = gone[1:], come[1:]
		}
	}
}

// compareFirst compares the first keys of two lists; an empty one goes last.
func compareFirst(a, b []*Frontend) int {
	switch {
	case len(b) == 0:
		return -1
	case len(a) == 0:
		return 1
	}
	return a[0].Key.Compare(b[0].Key)
}

func (u *update) countAddresses(ips []netip.Addr, by int) {
	for _, ip := range ips {
		u.clusterIPs[ip] += by
		if u.clusterIPs[ip] == 0 {
			delete(u.clusterIPs, ip)
		}
	}
	u.addresses = append(u.addresses, ips...)
}
