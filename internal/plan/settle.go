package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// finish settles all that was touched and returns the difference.
func (u *update) finish() *Change {
	u.settleFrontends()
	u.settleClusterIPs()
	u.settleHealthPorts()
	for name := range u.touched {
		u.settleHealthCheck(name)
		reports := u.reportsOf(name)
		u.publish(u.reports[name], reports)
		if len(reports) == 0 {
			delete(u.Planner.reports, name)
		} else {
			u.Planner.reports[name] = reports
		}
	}
	u.settleProblems()
	return u.change
}

func (u *update) settleFrontends() {
	slices.SortFunc(u.keys, Key.Compare)
	for _, key := range slices.Compact(u.keys) {
		holder, held := u.frontends.holder(key)
		current := u.desired.Frontends[key]
		if current == nil || !held || holder.name != current.Service {
			touchClaimants(u, u.frontends[key])
		}
		switch {
		case held && (current == nil || !current.same(holder.value)):
			u.desired.Frontends[key] = holder.value
			u.change.Set = append(u.change.Set, holder.value)
		case !held && current != nil:
			delete(u.desired.Frontends, key)
			u.change.Removed = append(u.change.Removed, key)
		}
	}
}

// touchClaimants has the reports written again of all who claim something that
// went to somebody else: its name is in the losers' reports, and the new holder
// may have been a loser.
func touchClaimants[V any](u *update, all []claim[V]) {
	for _, c := range all {
		u.touched[c.name] = struct{}{}
	}
}

func (u *update) settleClusterIPs() {
	slices.SortFunc(u.addresses, netip.Addr.Compare)
	for _, ip := range slices.Compact(u.addresses) {
		_, had := u.desired.ClusterIPs[ip]
		switch has := u.clusterIPs[ip] > 0; {
		case has && !had:
			u.desired.ClusterIPs[ip] = struct{}{}
			u.change.ClusterIPsAdded = append(u.change.ClusterIPsAdded, ip)
		case had && !has:
			delete(u.desired.ClusterIPs, ip)
			u.change.ClusterIPsRemoved = append(u.change.ClusterIPsRemoved, ip)
		}
	}
}

func (u *update) settleHealthPorts() {
	slices.SortFunc(u.checkPorts, cmp.Compare)
	for _, port := range slices.Compact(u.checkPorts) {
		touchClaimants(u, u.healthChecks[port])
	}
}

func (u *update) settleHealthCheck(name model.Name) {
	var want HealthCheck // of no port: none
	if s := u.services[name]; s != nil {
		if h, held := u.healthChecks.holder(s.service.HealthCheckNodePort); held && h.name == name {
			want = h.value
		}
	}
	if u.desired.HealthChecks[name] == want {
		return
	}
	u.change.HealthChecks = true
	if want.Port == 0 {
		delete(u.desired.HealthChecks, name)
	} else {
		u.desired.HealthChecks[name] = want
	}
}

// reportsOf are the reports on a Service and its slices, with what it lost to
// other Services.
func (u *update) reportsOf(name model.Name) []report {
	s := u.services[name]
	if s == nil {
		return nil
	}
	var losses []model.Problem
	for _, f := range s.frontends {
		if h, _ := u.frontends.holder(f.Key); h.name != name {
			losses = append(losses, lost(f, h.name))
		}
	}
	if port := s.service.HealthCheckNodePort; port != 0 {
		if h, _ := u.healthChecks.holder(port); h.name != name {
			losses = append(losses, lostHealthCheck(name, port, h.name))
		}
	}
	if len(losses) == 0 {
		return s.reports
	}
	own := serviceObject(name)
	if len(s.reports) > 0 && s.reports[0].object == own {
		all := slices.Clone(s.reports)
		all[0].problems = slices.Concat(all[0].problems, losses)
		return all
	}
	return slices.Insert(slices.Clone(s.reports), 0, report{own, losses})
}

// publish notes that reports take the place of others. An object may go from
// one reporter to another within an update: what is reported then stands.
func (u *update) publish(old, reports []report) {
	for _, r := range old {
		if _, noted := u.reported[r.object]; !noted {
			u.reported[r.object] = nil
		}
	}
	for _, r := range reports {
		u.reported[r.object] = r.problems
	}
}

func (u *update) settleProblems() {
	for object, problems := range u.reported {
		if slices.Equal(u.desired.Problems[object], problems) {
			continue
		}
		u.change.Problems = true
		if len(problems) == 0 {
			delete(u.desired.Problems, object)
		} else {
			u.desired.Problems[object] = problems
		}
	}
}
