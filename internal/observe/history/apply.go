package history

import (
	"net/netip"
	"slices"

	"sluice/internal/base/printable"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// service is a Service that has a frontend.
type service struct {
	name      model.Name
	frontends []*plan.Frontend
	// before are the frontends before the commit that is being applied, if it touches
	// the Service.
	before  []*plan.Frontend
	touched bool
}

// batch is a commit that is being applied.
type batch struct {
	*History
	*engine.Commit
	touched []*service
	events  int // that were added
	left    int // Events that were not added, because there are too many
}

// apply records what a commit changed.
func (h *History) apply(c *engine.Commit) {
	b := &batch{History: h, Commit: c}
	for _, f := range c.Change.Set {
		b.set(f)
	}
	for _, f := range c.Change.Serving {
		b.set(f)
	}
	for _, key := range c.Change.Removed {
		b.remove(key)
	}
	h.addCommit(c, b.touched)
	if h.begun {
		b.record()
	} else {
		// A proxy that starts finds everything new.
		h.begun = true
		b.add(Event{Kind: Started, Detail: printable.Count(len(h.services), "Service") + ", " + printable.Count(len(h.owners), "frontend")})
	}
	b.recordFailures()
	if b.left > 0 {
		b.History.add(&h.changes, b.stamped(Event{Kind: More, Detail: printable.Count(b.left, "other change") + " in the same commit"}))
	}
	for _, s := range b.touched {
		s.touched, s.before = false, nil
		if len(s.frontends) == 0 {
			delete(h.services, s.name)
		}
	}
}

// touch remembers the frontends of a Service before the commit.
func (b *batch) touch(s *service) {
	if !s.touched {
		s.touched, s.before = true, slices.Clone(s.frontends)
		b.touched = append(b.touched, s)
	}
}

func (b *batch) set(f *plan.Frontend) {
	s := b.services[f.Service]
	if s == nil {
		s = &service{name: f.Service}
		b.services[f.Service] = s
	}
	if owner := b.owners[f.Key]; owner != nil && owner != s {
		b.remove(f.Key)
	}
	b.touch(s)
	b.owners[f.Key] = s
	if i := s.index(f.Key); i >= 0 {
		s.frontends[i] = f
	} else {
		s.frontends = append(s.frontends, f)
	}
}

func (b *batch) remove(key plan.Key) {
	s := b.owners[key]
	if s == nil {
		return
	}
	b.touch(s)
	delete(b.owners, key)
	if i := s.index(key); i >= 0 {
		s.frontends = slices.Delete(s.frontends, i, i+1)
	}
}

func (s *service) index(key plan.Key) int {
	return slices.IndexFunc(s.frontends, func(f *plan.Frontend) bool { return f.Key == key })
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
	e.At = b.End
	e.Took, e.Latency = durations(b.Commit)
	return e
}

// record adds Events about what the commit changed.
func (b *batch) record() {
	if b.Full() {
		b.add(Event{Kind: Repaired})
	}
	if b.Change.Settings != nil {
		b.add(Event{Kind: NodeChanged, Detail: "addresses, pod detection or ranges of Services"})
	}
	for _, s := range b.touched {
		if b.events == maxPerCommit { // do not compare what is not recorded
			b.left++
			continue
		}
		b.recordService(s)
	}
}

// recordService adds Events about a Service.
func (b *batch) recordService(s *service) {
	name := s.name.String()
	was, is := poolsOf(s.before), poolsOf(s.frontends)
	switch {
	case len(s.before) == 0 && len(s.frontends) == 0:
		return // it came and went at once
	case len(s.before) == 0:
		inUse, _ := plan.InUse(s.frontends)
		b.add(Event{Kind: ServiceAdded, Service: name,
			Detail: printable.Count(len(s.frontends), "frontend") + ", " + printable.Count(inUse, "endpoint")})
		return
	case len(s.frontends) == 0:
		b.add(Event{Kind: ServiceRemoved, Service: name})
		return
	}
	if change := changes(s.before, s.frontends); change != "" {
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
	if b.Evidence == nil {
		return nil
	}
	out := map[netip.AddrPort]plan.Reason{}
	for _, evidence := range b.Evidence([]model.Name{name}) {
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
		if s := b.owners[key]; s != nil {
			e.Service = s.name.String()
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
	note := func(differs bool, what string) {
		if differs {
			out = append(out, what)
		}
	}
	note(a.Port != b.Port, "port name")
	note(a.Kind != b.Kind, "kind of address")
	note(a.Route.Local != b.Route.Local || (a.Outside == nil) != (b.Outside == nil), "traffic policy")
	note(a.Route.AlgorithmText() != b.Route.AlgorithmText(), "algorithm")
	note(a.Affinity != b.Affinity, "session affinity")
	note(a.Filtered != b.Filtered || !slices.Equal(a.Sources, b.Sources), "source ranges")
	note(a.Masquerade != b.Masquerade, "masquerading")
	return out
}
