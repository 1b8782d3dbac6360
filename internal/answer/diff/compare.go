package diff

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// Compare returns how a new plan differs from an old one.
func Compare(old, new *plan.Desired) *Report {
	r := &Report{}
	r.compareFrontends(old, new)
	r.compareHealthChecks(old, new)
	r.Node = compareNode(old, new)
	known := map[model.Problem]bool{}
	for _, p := range Problems(old) {
		known[p] = true
	}
	for _, p := range Problems(new) {
		if r.Problems = append(r.Problems, p.String()); !known[p] {
			r.NewProblems = append(r.NewProblems, p.String())
		}
	}
	return r
}

// WaitFor marks what another report of the same old plan does not have: what differs only
// after a restart, and why.
func (r *Report) WaitFor(restart string, atOnce *Report) {
	for _, lists := range [][2][]Change{{r.HealthChecks, atOnce.HealthChecks}, {r.Node, atOnce.Node}} {
		for i := range lists[0] {
			if c := &lists[0][i]; !slices.ContainsFunc(lists[1], func(o Change) bool { return reflect.DeepEqual(*c, o) }) {
				c.Restart = restart
			}
		}
	}
	soon := map[string]Frontend{}
	for _, f := range atOnce.Frontends {
		soon[f.Frontend] = f
	}
	for i := range r.Frontends {
		f := &r.Frontends[i]
		if same, listed := soon[f.Frontend]; (listed || atOnce.unlisted() == 0) && !reflect.DeepEqual(*f, same) {
			f.Restart = restart
		}
	}
}

// Problems returns the problems of a plan, sorted by object.
func Problems(d *plan.Desired) []model.Problem {
	var out []model.Problem
	for _, object := range slices.SortedFunc(maps.Keys(d.Problems), model.Object.Compare) {
		out = append(out, d.Problems[object]...)
	}
	return out
}

func (r *Report) compareFrontends(old, new *plan.Desired) {
	for k, f := range new.Frontends {
		before := old.Frontends[k]
		if before == nil {
			r.Added++
			r.add(Added, f, frontendChanges(nil, f))
		} else if details := frontendChanges(before, f); len(details) > 0 {
			r.Changed++
			r.add(Changed, f, details)
		}
	}
	for k, f := range old.Frontends {
		if new.Frontends[k] == nil {
			r.Removed++
			r.add(Removed, f, nil)
		}
	}
	slices.SortFunc(r.Frontends, func(a, b Frontend) int {
		return cmp.Or(a.name.Compare(b.name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Frontend, b.Frontend))
	})
	r.Frontends = r.Frontends[:min(len(r.Frontends), MaxFrontends)]
}

func (r *Report) add(a Action, f *plan.Frontend, details []Change) {
	r.Frontends = append(r.Frontends, Frontend{
		Action: a, Service: f.Service.String(), Port: f.Port, Kind: f.Kind.String(), Frontend: f.Key.String(),
		Details: details, name: f.Service,
	})
}

// changes collects differences.
type changes []Change

func (c *changes) value(what, old, new string) {
	if old != new {
		*c = append(*c, Change{What: what, Old: old, New: new})
	}
}

// lists compares two sorted lists.
func lists[T comparable](c *changes, what string, old, new []T, compare func(a, b T) int, text func(T) string) {
	if slices.Equal(old, new) {
		return
	}
	change := Change{What: what}
	for a, b := range plan.Merge(old, new, compare) {
		switch {
		case b == nil:
			change.Removed = change.Removed.add(text(*a))
		case a == nil:
			change.Added = change.Added.add(text(*b))
		}
	}
	*c = append(*c, change)
}

func (c *changes) endpoints(what string, old, new []plan.Endpoint) {
	order := func(a, b plan.Endpoint) int {
		return cmp.Or(a.Compare(b.AddrPort), cmp.Compare(endpointText(a), endpointText(b)))
	}
	lists(c, what, old, new, order, endpointText)
}

func endpointText(e plan.Endpoint) string {
	text := e.String()
	if e.Weight != 0 {
		text += fmt.Sprintf(" (weight %d)", e.Weight)
	}
	if e.Local {
		text += " (on this node)"
	}
	return text
}

func (c *changes) prefixes(what string, old, new []netip.Prefix) {
	lists(c, what, old, new, netip.Prefix.Compare, netip.Prefix.String)
}

func (c *changes) addresses(what string, old, new []netip.Addr) {
	lists(c, what, old, new, netip.Addr.Compare, netip.Addr.String)
}

// frontendChanges compares frontends. For a new one, it returns what differs from
// the defaults.
func frontendChanges(old, new *plan.Frontend) []Change {
	var c changes
	if old != nil {
		for _, field := range new.Differences(old) {
			c.field(field, old, new)
		}
		return c
	}
	for field := plan.EndpointsField; field < plan.NumFields; field++ {
		c.field(field, &plan.Frontend{}, new)
	}
	return c
}

// field adds a difference, in the words of that field.
func (c *changes) field(field plan.Field, old, new *plan.Frontend) {
	switch field {
	case plan.OwnerField:
		c.value("service", serviceText(old), serviceText(new))
	case plan.KindField:
		c.value("kind", old.Kind.String(), new.Kind.String())
	case plan.EndpointsField:
		c.endpoints("endpoints", old.Route.Endpoints, new.Route.Endpoints)
		if len(new.Route.Endpoints) == 0 {
			c.value("connections", emptyText(old), emptyText(new))
		}
	case plan.PolicyField:
		c.value("traffic policy", policyText(&old.Route), policyText(&new.Route))
	case plan.OutsideField:
		c.value("clients from outside", outsideText(old.Outside), outsideText(new.Outside))
		if new.Outside != nil {
			before := old.Outside
			if before == nil {
				before = &plan.Route{}
			}
			c.endpoints("endpoints for clients from outside", before.Endpoints, new.Outside.Endpoints)
		}
	case plan.AlgorithmField:
		c.value("algorithm", old.Route.AlgorithmText(), new.Route.AlgorithmText())
	case plan.MasqueradeField:
		c.value("masquerade", old.Masquerade.Text(), new.Masquerade.Text())
	case plan.AffinityField:
		c.value("session affinity", affinityText(old.Affinity), affinityText(new.Affinity))
	case plan.SourcesField:
		c.value("admitted", admittedText(old), admittedText(new))
		if new.Filtered {
			c.prefixes("admitted sources", old.Sources, new.Sources)
		}
	case plan.DirectField:
		c.value("direct return", directText(old), directText(new))
	case plan.WatchedField:
		c.value("endpoints that do not answer", watchedText(old), watchedText(new))
	case plan.ProxyField, plan.AlsoServingField, plan.EjectedField, plan.ReleasedField, plan.MasqueradeCauseField: // no client notices
	default:
		*c = append(*c, Change{What: field.Text()})
	}
}

func serviceText(f *plan.Frontend) string {
	if f.Port == "" {
		return f.Service.String()
	}
	return fmt.Sprintf("%s, port %s", f.Service, f.Port)
}

// emptyText is "" for a pool with endpoints, where the refusal does not matter, and for no frontend.
func emptyText(f *plan.Frontend) string {
	if len(f.Route.Endpoints) > 0 || f.Key == (plan.Key{}) {
		return ""
	}
	return f.Route.Empty.Text()
}

// policyText is shown also where it selects the same endpoints: it decides what happens
// when they leave.
func policyText(r *plan.Route) string {
	if r.Local {
		return "endpoints on this node only"
	}
	return "all endpoints"
}

func outsideText(r *plan.Route) string {
	switch {
	case r == nil:
		return "all endpoints"
	case len(r.Endpoints) > 0:
		return "endpoints on this node only"
	}
	return r.Empty.Text()
}

func directText(f *plan.Frontend) string {
	if f.Direct == nil {
		return "none, clients outside are served through the node that they ask"
	}
	return f.Direct.Text()
}

func affinityText(seconds uint32) string {
	if seconds == 0 {
		return "none"
	}
	return (time.Duration(seconds) * time.Second).String()
}

func watchedText(f *plan.Frontend) string {
	if f.Watched {
		return "left out for a while"
	}
	return "get connections"
}

func admittedText(f *plan.Frontend) string {
	switch {
	case !f.Filtered:
		return "everybody"
	case len(f.Sources) == 0:
		return "nobody"
	}
	return "some sources"
}

func compareNode(old, new *plan.Desired) []Change {
	a, b := &old.Settings, &new.Settings
	var c changes
	for _, f := range model.Families {
		c.value(fmt.Sprintf("%v node ports answer on", f), nodePortText(a, f), nodePortText(b, f))
	}
	c.addresses("node port addresses", a.NodePortIPs, b.NodePortIPs)
	c.addresses("loopback node port addresses", a.LoopbackIPs, b.LoopbackIPs)
	c.addresses("ClusterIPs whose ports are refused", bare(old, new), bare(new, old))
	c.prefixes("service CIDRs", a.ServiceCIDRs, b.ServiceCIDRs)
	for _, f := range model.Families {
		c.value(fmt.Sprintf("%v pods are recognised by", f), a.Detector(f).Text(), b.Detector(f).Text())
	}
	c.value("packets with direct return are handed to", a.DirectReturn.Text(), b.DirectReturn.Text())
	c.value("masquerade mark", fmt.Sprintf("%#x", a.MasqueradeMark), fmt.Sprintf("%#x", b.MasqueradeMark))
	c.value("invalid packets are dropped", fmt.Sprint(a.DropInvalid), fmt.Sprint(b.DropInvalid))
	return c
}

func nodePortText(s *plan.Settings, f model.Family) string {
	if s.NodePortAll(f) {
		return "every local address"
	}
	return "chosen addresses"
}

// bare returns the ClusterIPs that one plan has and another has not, without those
// that are added or removed with a frontend.
func bare(of, other *plan.Desired) []netip.Addr {
	shown := map[netip.Addr]bool{}
	for k := range of.Frontends {
		if _, both := other.Frontends[k]; !both {
			shown[k.Addr] = true
		}
	}
	var out []netip.Addr
	for ip := range of.ClusterIPs {
		if _, both := other.ClusterIPs[ip]; !both && !shown[ip] {
			out = append(out, ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (r *Report) compareHealthChecks(old, new *plan.Desired) {
	var c changes
	names := maps.Clone(old.HealthChecks)
	if names == nil {
		names = map[model.Name]plan.HealthCheck{}
	}
	maps.Copy(names, new.HealthChecks)
	for _, name := range slices.SortedFunc(maps.Keys(names), model.Name.Compare) {
		c.value(name.String(), healthText(old, name), healthText(new, name))
	}
	r.HealthChecks = c
}

func healthText(d *plan.Desired, name model.Name) string {
	h, there := d.HealthChecks[name]
	if !there {
		return "none"
	}
	return fmt.Sprintf("port %d, endpoints on this node: %d", h.Port, h.LocalEndpoints)
}
