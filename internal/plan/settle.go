package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"sluice/internal/model"
)

// finish settles everything that was touched and returns the difference.
func (u *update) finish() *Change {
	var clusterIPs sync.WaitGroup // is independent of the rest
	clusterIPs.Go(u.settleClusterIPs)
	defer clusterIPs.Wait()
	u.settleRanges()
	u.settleFrontends()
	u.settleHealthPorts()
	for _, c := range u.touched {
		u.settleHealthCheck(c)
		reports := u.reportsOf(c)
		u.publish(c.reports, reports)
		c.reports = reports
	}
	u.settleProblems()
	return u.change
}

func (u *update) settleFrontends() {
	slices.SortFunc(u.keys, Key.Compare)
	for _, key := range slices.Compact(u.keys) {
		all := u.served(key)
		current := u.desired.Frontends[key]
		if current == nil || len(all) == 0 || all[0].name() != current.Service || all[0].value.Kind != current.Kind {
			touchClaimants(u, all)
		}
		switch {
		case len(all) > 0 && (current == nil || !current.same(all[0].value)):
			if current != nil {
				u.change.replace(current)
			}
			u.desired.Frontends[key] = all[0].value
			u.settleExclusive(current, all[0].value)
			if current != nil && current.sameRules(all[0].value) {
				u.change.Serving = append(u.change.Serving, all[0].value)
			} else {
				u.change.Set = append(u.change.Set, all[0].value)
			}
		case len(all) == 0 && current != nil:
			delete(u.desired.Frontends, key)
			u.settleExclusive(current, nil)
			u.change.replace(current)
			u.change.Removed = append(u.change.Removed, key)
		}
	}
}

// settleExclusive counts a frontend that replaces another. Either may be nil.
func (u *update) settleExclusive(old, new *Frontend) {
	if new.Exclusive() {
		u.desired.ExclusiveIPs[new.Addr]++
	}
	if old.Exclusive() {
		if u.desired.ExclusiveIPs[old.Addr]--; u.desired.ExclusiveIPs[old.Addr] == 0 {
			delete(u.desired.ExclusiveIPs, old.Addr)
		}
	}
}

// touchClaimants makes all claimants of something that changed hands report
// again: the name of the holder is in the losers' reports, and the new holder
// may have been a loser.
func touchClaimants[V ranked](u *update, all []claim[V]) {
	for _, c := range all {
		u.touch(c.claimant)
	}
}

func (u *update) settleClusterIPs() {
	for _, ip := range u.newIPs {
		u.clusterIPs[ip]++
	}
	for _, ip := range u.lostIPs {
		if u.clusterIPs[ip]--; u.clusterIPs[ip] == 0 {
			delete(u.clusterIPs, ip)
		}
	}
	touched := append(u.newIPs, u.lostIPs...)
	slices.SortFunc(touched, netip.Addr.Compare)
	for _, ip := range slices.Compact(touched) {
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

func (u *update) settleHealthCheck(c *claimant) {
	var want HealthCheck // port 0: none
	if all := u.healthChecks[c.plan.healthPort]; len(all) > 0 && all[0].claimant == c {
		want = all[0].value
	}
	had := u.desired.HealthChecks[c.name()]
	if had == want {
		return
	}
	u.change.HealthChecks = true
	if had.Port != want.Port && had.Port != 0 {
		u.change.HealthPortsRemoved = append(u.change.HealthPortsRemoved, had.Port)
	}
	if had.Port != want.Port && want.Port != 0 {
		u.change.HealthPortsAdded = append(u.change.HealthPortsAdded, want.Port)
	}
	if want.Port == 0 {
		delete(u.desired.HealthChecks, c.name())
	} else {
		u.desired.HealthChecks[c.name()] = want
	}
}

// reportsOf returns the reports on a Service and its slices, including what it
// lost to other Services.
func (u *update) reportsOf(c *claimant) []report {
	var losses []model.Problem
	for _, f := range c.plan.frontends {
		if h := u.frontends.holder(u.winner(f.Key)); h.claimant != c || h.value.Key != f.Key {
			losses = append(losses, lost(f, h.value))
		} else if !f.IsRange() {
			continue
		} else if p, some := u.crossing(f); some {
			losses = append(losses, p)
		}
	}
	if port := c.plan.healthPort; port != 0 {
		if h := u.healthChecks.holder(port); h.claimant != c {
			losses = append(losses, lostHealthCheck(c.name(), port, h.name()))
		}
	}
	reports := c.plan.reports
	if len(losses) == 0 {
		return reports
	}
	own := model.ServiceObject(c.name())
	if len(reports) > 0 && reports[0].object == own {
		all := slices.Clone(reports)
		all[0].problems = slices.Concat(all[0].problems, losses)
		return all
	}
	return slices.Insert(slices.Clone(reports), 0, report{object: own, problems: losses})
}

// publish records that reports replace others. An object may move from one
// reporter to another within an update: its new report then wins.
func (u *update) publish(old, reports []report) {
	for _, r := range old {
		if _, noted := u.reported[r.object]; !noted {
			u.reported[r.object] = report{}
		}
	}
	for _, r := range reports {
		u.reported[r.object] = r
	}
}

func (u *update) settleProblems() {
	for object, r := range u.reported {
		_, local := u.desired.EventsOn[object]
		switch {
		case r.local && !local:
			u.desired.EventsOn[object] = struct{}{}
		case local && !r.local:
			delete(u.desired.EventsOn, object)
		}
		if !slices.Equal(u.desired.Problems[object], r.problems) || local != r.local && len(r.problems) > 0 {
			u.change.Problems = true
		}
		if len(r.problems) == 0 {
			delete(u.desired.Problems, object)
		} else {
			u.desired.Problems[object] = r.problems
		}
	}
}
