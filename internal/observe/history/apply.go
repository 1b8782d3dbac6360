package history

import (
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// batch is a commit that is being applied.
type batch struct {
	*History
	*queuedCommit
	services []*service // that it changed
	events   int        // that were added
	left     int        // Events that were not added, because there are too many
}

type service struct {
	name        model.Name
	was, is     []*plan.Frontend // all of them, if the commit has them
	known       bool             // whether it does
	before, now []*plan.Frontend // those that changed
}

func (h *History) apply(c *queuedCommit) {
	b := &batch{History: h, queuedCommit: c}
	b.services = c.changedServices()
	h.addCommit(c.Commit, b.services)
	if h.begun {
		b.record()
	} else {
		// A proxy that starts finds everything new.
		h.begun, h.settings = true, c.Change.Settings
		b.add(Event{Kind: Started, Detail: printable.Count(len(b.services), "Service") + ", " + printable.Count(len(c.Change.Set), "frontend")})
	}
	b.recordFailures()
	if b.left > 0 {
		b.History.add(&h.changes, b.stamped(Event{Kind: More, Detail: printable.Count(b.left, "other change") + " in the same commit"}))
	}
}

func (c *queuedCommit) changedServices() (all []*service) {
	byName := map[model.Name]*service{}
	of := func(f *plan.Frontend) *service {
		s := byName[f.Service]
		if s == nil {
			s = &service{name: f.Service}
			s.is, s.known = c.frontends[f.Service]
			byName[s.name] = s
			all = append(all, s)
		}
		return s
	}
	for before, now := range c.Change.Frontends() {
		if before != nil {
			s := of(before)
			s.before = append(s.before, before)
		}
		if now != nil {
			s := of(now)
			s.now = append(s.now, now)
		}
	}
	for _, s := range all {
		s.was = s.before
		for _, f := range s.is {
			if !slices.Contains(s.now, f) {
				s.was = append(s.was, f)
			}
		}
	}
	return all
}

// add adds an Event of the commit, unless there are too many.
func (b *batch) add(e Event) {
	if b.events == maxPerCommit {
		b.left++
		return
	}
	b.events++
	b.History.add(&b.changes, b.stamped(e))
}

func (b *batch) stamped(e Event) Event {
	e.At, e.Of = b.End, b.System
	e.Took, e.Latency = durations(b.Commit)
	return e
}

// record adds Events about what the commit changed.
func (b *batch) record() {
	if b.Full() {
		b.add(Event{Kind: Repaired})
	}
	if b.Change.Settings != nil {
		b.recordSettings(b.Change.Settings)
	}
	for _, s := range b.services {
		if b.events == maxPerCommit || !s.known { // do not compare what is not recorded
			b.left++
			continue
		}
		b.recordService(s)
	}
}

// recordSettings adds an Event about the settings of the node. Of the ways to other nodes it tells how many can
// be used.
func (b *batch) recordSettings(now *plan.Settings) {
	before := b.settings
	b.settings = now
	switch {
	case before == nil || !before.SameBesidesDirect(now):
		b.add(Event{Kind: NodeChanged, Detail: "addresses, pod detection or ranges of Services"})
	case before.DirectReturn.Text() != now.DirectReturn.Text():
		b.add(Event{Kind: NodeChanged, Detail: "packets with direct return are handed to " + now.DirectReturn.Text()})
	}
}

func (b *batch) recordService(s *service) {
	name := s.name.String()
	was, is := poolsOf(s.was), poolsOf(s.is)
	switch {
	case len(s.was) == 0:
		inUse, _ := plan.InUse(s.is)
		b.add(Event{Kind: ServiceAdded, Service: name,
			Detail: printable.Count(len(s.is), "frontend") + ", " + printable.Count(inUse, "endpoint")})
		return
	case len(s.is) == 0:
		b.add(Event{Kind: ServiceRemoved, Service: name})
		return
	}
	if change := changes(s.before, s.now); change != "" {
		b.add(Event{Kind: ServiceChanged, Service: name, Detail: change})
	}
	b.recordEndpoints(s.name, was, is)
}

// recordEndpoints adds Events about the endpoints of a Service.
func (b *batch) recordEndpoints(service model.Name, was, is pools) {
	var all []netip.AddrPort
	for at, use := range is {
		if was[at] != use {
			all = append(all, at)
		}
	}
	for at := range was {
		if _, there := is[at]; !there {
			all = append(all, at)
		}
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	why := b.reasons(service)
	for _, at := range all {
		e := Event{Service: service.String(), Endpoint: at.String()}
		switch is[at] {
		case used:
			e.Kind = EndpointAdded
			if was[at] == draining {
				e.Detail = "it gets new connections again"
			}
		case draining:
			e.Kind = EndpointDraining
		default:
			e.Kind = EndpointRemoved
		}
		if reason, found := why[at]; found && e.Kind != EndpointAdded && reason != plan.InPool {
			e.Reason, e.Detail = reason.String(), reason.Text()
		}
		b.add(e)
	}
}

// reasons returns why endpoints of a Service are not used, as things are now.
func (b *batch) reasons(name model.Name) map[netip.AddrPort]plan.Reason {
	var evidence plan.Evidence
	b.Inspect(func(v engine.View) { evidence = v.Evidence(name) })
	out := map[netip.AddrPort]plan.Reason{}
	for _, f := range evidence.Frontends() {
		d := evidence.PoolDecision(f)
		if d == nil {
			continue
		}
		for i := range d.Endpoints {
			e := &d.Endpoints[i]
			at := netip.AddrPortFrom(e.Endpoint.Addr, e.Port)
			if before, found := out[at]; !found || before == plan.Duplicate {
				out[at] = e.InCluster
			}
		}
	}
	return out
}

// recordFailures adds Events about frontends that the kernel refused.
func (b *batch) recordFailures() {
	keys := make([]plan.Key, 0, len(b.Result.Failed))
	for key := range b.Result.Failed {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, plan.Key.Compare)
	for _, key := range keys {
		e := Event{Kind: Failed, Frontend: key.String(), Reason: b.Result.Failed[key].Error(), Detail: b.Result.Failed[key].Error()}
		if owner, known := b.owners[key]; known {
			e.Service = owner.String()
		}
		b.add(e)
	}
}

// use is what an endpoint gets.
type use uint8

const (
	draining use = iota + 1 // keeps its connections
	used                    // gets new ones
)

// pools are the endpoints of all frontends of a Service, and the most that any of them
// lets each do.
type pools map[netip.AddrPort]use

func poolsOf(frontends []*plan.Frontend) pools {
	all := pools{}
	seen := map[*plan.Endpoint]struct{}{} // frontends share pools
	add := func(list []plan.Endpoint, u use) {
		if len(list) == 0 {
			return
		}
		if _, done := seen[&list[0]]; done {
			return
		}
		seen[&list[0]] = struct{}{}
		for _, e := range list {
			all[e.AddrPort] = max(all[e.AddrPort], u)
		}
	}
	for _, f := range frontends {
		if f.IsRange() { // it has the endpoints of the port that it extends
			continue
		}
		for _, r := range f.Routes() {
			add(r.Endpoints, used)
		}
		add(f.AlsoServing, draining)
	}
	return all
}

// changes describes how frontends changed, apart from their endpoints.
func changes(was, is []*plan.Frontend) string {
	old := make(map[plan.Key]*plan.Frontend, len(was))
	for _, f := range was {
		old[f.Key] = f
	}
	var added, removed []*plan.Frontend
	var fields []string
	for _, f := range is {
		before := old[f.Key]
		delete(old, f.Key)
		if before == nil {
			added = append(added, f)
			continue
		}
		for _, field := range differences(before, f) {
			if !slices.Contains(fields, field) {
				fields = append(fields, field)
			}
		}
	}
	for _, f := range was {
		if old[f.Key] != nil {
			removed = append(removed, f)
		}
	}
	var parts []string
	if len(added) > 0 {
		parts = append(parts, "added "+printable.List(added, (*plan.Frontend).Text))
	}
	if len(removed) > 0 {
		parts = append(parts, "removed "+printable.List(removed, (*plan.Frontend).Text))
	}
	if len(fields) > 0 {
		parts = append(parts, "other "+printable.List(fields, func(s string) string { return s }))
	}
	return printable.ListFirst(parts, len(parts), "; ", func(s string) string { return s })
}

// differences names what differs between two versions of a frontend, apart from their
// endpoints.
func differences(a, b *plan.Frontend) (out []string) {
	for _, field := range a.Differences(b) {
		switch field {
		case plan.EndpointsField, plan.OutsideField, plan.AlsoServingField, plan.EjectedField, plan.ReleasedField, plan.ProxyField, plan.MasqueradeCauseField:
		default:
			out = append(out, field.Text())
		}
	}
	return out
}

const (
	maxCommits  = 60 // that are kept
	maxServices = 3  // that each names
)

// Commit is a commit that changed something. The names of its fields in JSON are an
// interface and never change.
type Commit struct {
	At       time.Time `json:"at"`
	Revision uint64    `json:"revision"`
	// Services are some of those that the change was about.
	Services []string `json:"services,omitempty"`
	// More is how many other Services it was about.
	More     int `json:"moreServices,omitempty"`
	Set      int `json:"set"`     // frontends
	Removed  int `json:"removed"` // frontends
	Failed   int `json:"failed"`  // frontends
	Elements int `json:"elements"`
	// Took is the duration of the commit, and Latency the time from the first event
	// to its end, in seconds.
	Took    float64 `json:"tookSeconds"`
	Latency float64 `json:"latencySeconds"`
}

// addCommit adds a commit, unless it changed nothing in the kernel.
func (h *History) addCommit(c *engine.Commit, services []*service) {
	if c.Change.Empty() {
		return
	}
	took, latency := durations(c)
	now := Commit{
		At: c.End, Revision: c.Change.Revision,
		Set: len(c.Change.Set), Removed: len(c.Change.Removed), Failed: len(c.Result.Failed), Elements: c.Result.Elements,
		Took: took, Latency: latency,
	}
	for _, s := range services[:min(len(services), maxServices)] {
		now.Services = append(now.Services, s.name.String())
	}
	now.More = len(services) - len(now.Services)
	if len(h.commits) == maxCommits {
		h.commits = slices.Delete(h.commits, 0, 1)
	}
	h.commits = append(h.commits, now)
}

// durations returns how long the kernel took, and how long it was since the first event,
// in seconds.
func durations(c *engine.Commit) (took, latency float64) {
	if since := c.Events.Since; !since.IsZero() {
		latency = max(0, c.End.Sub(since).Seconds())
	}
	return c.Duration().Seconds(), latency
}
