package engine

import (
	"cmp"
	"container/heap"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// portion is about how many elements one Apply is given at most, if the dataplane is no Portioner. It takes
// the kernel a few milliseconds, and that is how long a change waits for a large one.
const portion = 500

// backlog is what is planned and not yet in the kernel. It is handed out in portions, in
// which namespaces take turns, and Services within one: those of which least was written
// while they waited are first. So a small change never waits for a large one of another
// Service, whatever makes that large, and a Service that changes faster than the kernel
// can be written delays itself only.
type backlog struct {
	// sole is the only change. It is the usual case, and the first one, which is the
	// largest: it need not be taken apart.
	sole *plan.Change

	revision uint64
	settings *plan.Settings
	// healthChecks and problems are the flags of a plan.Change.
	healthChecks, problems bool
	clusterIPs             map[netip.Addr]bool // true for added, false for removed
	healthPorts            map[uint16]bool     // the same

	entries map[plan.Key]*entry
	// serving are frontends for which the kernel has nothing to do.
	serving map[plan.Key]*plan.Frontend
	// before are those of entries and serving as observers know them, and taken those of them that
	// another Service gets.
	before map[plan.Key]*plan.Frontend
	taken  map[plan.Key]struct{}
	// at counts the entries at each address.
	at      map[netip.Addr]int
	tenants map[string]*turn // namespaces, by name
	order   turns            // the same
	// spending is what was spent by the namespace whose turn it was.
	spending int
	cost     int // of all entries

	arrivals uint64
	finished []model.Name // Services that have no entries any more, for eventLog
	// begun says that a portion was written and there is more.
	begun bool
}

// entry is a frontend to be written.
type entry struct {
	*plan.Frontend // if it is gone, as it was
	gone           bool
	cost           int
	owner          *turn
}

// turn is a namespace with entries, or a Service of one.
type turn struct {
	name    string
	spent   int  // what was written of it since it has entries
	behind  bool // of a Service: only large changes are about it
	arrival uint64
	index   int // in the heap that it is in

	// Of a namespace.
	services map[string]*turn
	order    turns
	spending int // as that of backlog

	// Of a Service.
	namespace *turn
	entries   []*entry // oldest first
	taken     int      // of entries, by choose
}

// turns is a heap: the first has spent least, and waits longest of those that small changes are about.
type turns []*turn

func (t turns) Len() int { return len(t) }
func (t turns) Less(i, j int) bool {
	a, b := t[i], t[j]
	if a.spent == b.spent && a.behind != b.behind {
		return b.behind
	}
	return cmp.Or(cmp.Compare(a.spent, b.spent), cmp.Compare(a.arrival, b.arrival)) < 0
}

func (t turns) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}
func (t *turns) Push(x any) {
	x.(*turn).index = len(*t)
	*t = append(*t, x.(*turn))
}
func (t *turns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

func newBacklog() *backlog {
	return &backlog{
		clusterIPs:  map[netip.Addr]bool{},
		healthPorts: map[uint16]bool{},
		entries:     map[plan.Key]*entry{},
		serving:     map[plan.Key]*plan.Frontend{},
		before:      map[plan.Key]*plan.Frontend{},
		taken:       map[plan.Key]struct{}{},
		at:          map[netip.Addr]int{},
		tenants:     map[string]*turn{},
	}
}

// empty reports whether there is nothing to write and nothing to tell.
func (b *backlog) empty() bool {
	return b.sole == nil && len(b.entries) == 0 && len(b.serving) == 0 && b.settings == nil && !b.healthChecks && !b.problems &&
		len(b.clusterIPs) == 0 && len(b.healthPorts) == 0
}

// waiting counts what is to be written.
func (b *backlog) waiting() int { return len(b.entries) + len(b.clusterIPs) }

// has reports whether frontends of a Service are to be written.
func (b *backlog) has(service model.Name) bool { return len(b.of(service)) > 0 }

// of returns the entries of a Service.
func (b *backlog) of(service model.Name) []*entry {
	if t := b.tenants[service.Namespace]; t != nil && t.services[service.Name] != nil {
		return t.services[service.Name].entries
	}
	return nil
}

// told returns the frontends of a Service as observers know them, given those that are desired.
func (b *backlog) told(service model.Name, held []*plan.Frontend) []*plan.Frontend {
	waiting := func(f *plan.Frontend) bool { return b.entries[f.Key] != nil }
	if waits := b.of(service); len(waits) > 0 {
		held = slices.DeleteFunc(held, waiting)
		for _, e := range waits {
			if was := b.before[e.Key]; was != nil && was.Service == service {
				held = append(held, was)
			}
		}
	}
	for key := range b.taken {
		if was := b.before[key]; was.Service == service {
			held = append(held, was)
		}
	}
	return held
}

// add adds a change, which is later than all before. What is added will be asked for in portions of
// that size, or as a whole if it is 0.
func (b *backlog) add(c *plan.Change, limit int) {
	if b.empty() && (limit <= 0 || fits(c, limit)) {
		b.sole = c
		return
	}
	b.takeApart()
	b.insert(c)
}

func (b *backlog) takeApart() {
	if c := b.sole; c != nil {
		b.sole = nil
		b.insert(c)
	}
}

func (b *backlog) insert(c *plan.Change) {
	b.revision = max(b.revision, c.Revision)
	if c.Settings != nil {
		b.settings = c.Settings
	}
	b.healthChecks = b.healthChecks || c.HealthChecks
	b.problems = b.problems || c.Problems
	for _, f := range c.Serving {
		b.remember(f.Key, c)
		if e := b.entries[f.Key]; e != nil {
			e.Frontend = f
		} else {
			b.serving[f.Key] = f
		}
	}
	behind := !fits(c, portion)
	for _, key := range c.Removed {
		b.remember(key, c)
		was := c.Before[key]
		if e := b.entries[key]; was == nil && e != nil {
			was = e.Frontend
		} else if was == nil {
			was = &plan.Frontend{Key: key}
		}
		b.put(was, true, behind)
	}
	for _, f := range c.Set {
		b.remember(f.Key, c)
		b.put(f, false, behind)
	}
	toggle(b.clusterIPs, c.ClusterIPsRemoved, false)
	toggle(b.clusterIPs, c.ClusterIPsAdded, true)
	toggle(b.healthPorts, c.HealthPortsRemoved, false)
	toggle(b.healthPorts, c.HealthPortsAdded, true)
}

// remember records what a frontend of a change was before. If a change of it waits already,
// observers know neither that nor what this one was planned from.
func (b *backlog) remember(key plan.Key, c *plan.Change) {
	if b.entries[key] == nil && b.serving[key] == nil && c.Before[key] != nil {
		b.before[key] = c.Before[key]
	}
}

// put adds an entry, or replaces one that waits, at its place if it is of the same Service.
func (b *backlog) put(f *plan.Frontend, gone, behind bool) {
	delete(b.serving, f.Key)
	e := b.entries[f.Key]
	if e != nil && e.Service != f.Service {
		b.drop(e)
		e = nil
	}
	if e == nil {
		owner := b.queue(f.Service, behind)
		e = &entry{owner: owner}
		owner.entries = append(owner.entries, e)
		b.entries[f.Key] = e
		b.at[f.Addr]++
	}
	if e.owner.behind && !behind {
		e.owner.behind = false
		// The large change may be none of its doing: of the node, for example.
		e.owner.spent = min(e.owner.spent, start(e.owner.namespace.spending, false))
		heap.Fix(&e.owner.namespace.order, e.owner.index)
	}
	b.cost -= e.cost
	was := b.before[f.Key]
	e.Frontend, e.gone, e.cost = f, gone, costOf(was, f)
	if gone {
		e.cost = costOf(nil, f)
	}
	b.cost += e.cost
	if was != nil && was.Service != f.Service {
		b.taken[f.Key] = struct{}{}
	} else {
		delete(b.taken, f.Key)
	}
}

// costOf estimates how many elements it takes to write a frontend instead of what it was before, nil
// for nothing.
func costOf(before, f *plan.Frontend) int {
	n := 1
	if before == nil || !slices.Equal(before.Sources, f.Sources) {
		n += len(f.Sources)
	}
	n += costOfRoute(routeOf(before, false), &f.Route)
	if f.Outside != nil {
		n += costOfRoute(routeOf(before, true), f.Outside)
	}
	return n
}

func routeOf(f *plan.Frontend, outside bool) *plan.Route {
	switch {
	case f == nil:
		return nil
	case outside:
		return f.Outside
	}
	return &f.Route
}

// costOfRoute counts the endpoints that differ, if that is what a mode writes.
func costOfRoute(before, r *plan.Route) int {
	if before == nil || before.Algorithm != r.Algorithm || r.Algorithm == model.Maglev || before.Weighted() || r.Weighted() {
		return r.NumSlots()
	}
	n := 0
	for range plan.DifferentEndpoints(before.Endpoints, r.Endpoints) {
		n++
	}
	return n
}

// start is what counts as spent by one that comes: as much as by those whose turn it is, so that it does
// not hold them up for long, less a portion for small changes, which so need not wait for them.
func start(spending int, behind bool) int {
	if behind {
		return spending
	}
	return spending - portion
}

func (b *backlog) queue(service model.Name, behind bool) *turn {
	t := b.tenants[service.Namespace]
	if t == nil {
		b.arrivals++
		t = &turn{name: service.Namespace, arrival: b.arrivals, spent: start(b.spending, false), services: map[string]*turn{}}
		b.tenants[t.name] = t
		heap.Push(&b.order, t)
	}
	q := t.services[service.Name]
	if q == nil {
		b.arrivals++
		q = &turn{name: service.Name, arrival: b.arrivals, spent: start(t.spending, behind), behind: behind, namespace: t}
		t.services[q.name] = q
		heap.Push(&t.order, q)
	}
	return q
}

// drop removes an entry.
func (b *backlog) drop(e *entry) {
	delete(b.entries, e.Key)
	b.cost -= e.cost
	if b.at[e.Addr]--; b.at[e.Addr] == 0 {
		delete(b.at, e.Addr)
	}
	q := e.owner
	if i := slices.Index(q.entries, e); i == 0 {
		q.entries = q.entries[1:] // the usual case, also of very many
	} else {
		q.entries = slices.Delete(q.entries, i, i+1)
	}
	if len(q.entries) > 0 {
		return
	}
	t := q.namespace
	b.finished = append(b.finished, model.Name{Namespace: t.name, Name: q.name})
	delete(t.services, q.name)
	heap.Remove(&t.order, q.index)
	if len(t.services) == 0 {
		delete(b.tenants, t.name)
		heap.Remove(&b.order, t.index)
	}
}

// toggle records that values were added or removed. A value that was added and
// then removed, or the other way round, is not a difference in the end.
func toggle[T comparable](net map[T]bool, some []T, added bool) {
	for _, v := range some {
		if was, ok := net[v]; ok && was != added {
			delete(net, v)
		} else {
			net[v] = added
		}
	}
}

// next returns what to write next, of about that cost, or everything if limit is 0. What
// belongs to no frontend is in the first portion. If there are several, a ClusterIP comes
// after its frontends: ports that are not there yet must not be rejected meanwhile.
func (b *backlog) next(limit int) *plan.Change {
	if c := b.sole; c != nil {
		if limit <= 0 || fits(c, limit) {
			return c
		}
		b.takeApart()
	}
	c := &plan.Change{Revision: b.revision, Settings: b.settings, HealthChecks: b.healthChecks, Problems: b.problems,
		Before: map[plan.Key]*plan.Frontend{}}
	var chosen []*entry
	whole := limit <= 0 || b.cost <= limit
	if whole {
		chosen = slices.SortedFunc(maps.Values(b.entries), func(x, y *entry) int { return x.Key.Compare(y.Key) })
	} else {
		chosen = b.choose(limit)
	}
	tell := func(key plan.Key) {
		if was := b.before[key]; was != nil {
			c.Before[key] = was
		}
	}
	for _, e := range chosen {
		tell(e.Key)
		if e.gone {
			c.Removed = append(c.Removed, e.Key)
		} else {
			c.Set = append(c.Set, e.Frontend)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.serving), plan.Key.Compare) {
		tell(key)
		c.Serving = append(c.Serving, b.serving[key])
	}
	for _, addr := range slices.SortedFunc(maps.Keys(b.clusterIPs), netip.Addr.Compare) {
		switch {
		case !whole && b.at[addr] > 0:
		case b.clusterIPs[addr]:
			c.ClusterIPsAdded = append(c.ClusterIPsAdded, addr)
		default:
			c.ClusterIPsRemoved = append(c.ClusterIPsRemoved, addr)
		}
	}
	for _, port := range slices.Sorted(maps.Keys(b.healthPorts)) {
		if b.healthPorts[port] {
			c.HealthPortsAdded = append(c.HealthPortsAdded, port)
		} else {
			c.HealthPortsRemoved = append(c.HealthPortsRemoved, port)
		}
	}
	return c
}

// fits reports whether the frontends of a change are of at most that cost.
func fits(c *plan.Change, limit int) bool {
	cost := len(c.Removed)
	for _, key := range c.Removed {
		if was := c.Before[key]; was != nil && cost <= limit {
			cost += costOf(nil, was) - 1
		}
	}
	for _, f := range c.Set {
		if cost > limit {
			break
		}
		cost += costOf(c.Before[f.Key], f)
	}
	return cost <= limit
}

// choose returns entries of about that cost in the order of their turns. What it takes counts as
// written at once, so that namespaces alternate within a portion too.
func (b *backlog) choose(limit int) (chosen []*entry) {
	var services, namespaces []*turn // of which everything is chosen
	for cost := 0; cost < limit && len(b.order) > 0; {
		t := b.order[0]
		q := t.order[0]
		b.spending, t.spending = max(b.spending, t.spent), max(t.spending, q.spent)
		e := q.entries[q.taken]
		chosen = append(chosen, e)
		cost += e.cost
		q.taken++
		q.spent += e.cost
		t.spent += e.cost
		if q.taken < len(q.entries) {
			heap.Fix(&t.order, 0)
		} else {
			services = append(services, heap.Pop(&t.order).(*turn))
		}
		if len(t.order) > 0 {
			heap.Fix(&b.order, 0)
		} else {
			namespaces = append(namespaces, heap.Pop(&b.order).(*turn))
		}
	}
	for _, e := range chosen {
		e.owner.taken = 0
	}
	// They stay in order until done says that they are written.
	for _, q := range services {
		heap.Push(&q.namespace.order, q)
	}
	for _, t := range namespaces {
		heap.Push(&b.order, t)
	}
	return chosen
}

// done records that a change from next is in the kernel, except for frontends that are left.
func (b *backlog) done(c *plan.Change, left map[plan.Key]struct{}) {
	if b.sole != nil && len(left) == 0 {
		b.sole = nil
		return
	}
	b.takeApart()
	b.settings, b.healthChecks, b.problems = nil, false, false
	for key := range b.serving {
		delete(b.before, key)
	}
	clear(b.serving)
	clear(b.healthPorts)
	for _, addr := range slices.Concat(c.ClusterIPsAdded, c.ClusterIPsRemoved) {
		delete(b.clusterIPs, addr)
	}
	written := func(key plan.Key) {
		if _, is := left[key]; !is {
			b.drop(b.entries[key])
			delete(b.before, key)
			delete(b.taken, key)
		}
	}
	for _, f := range c.Set {
		written(f.Key)
	}
	for _, key := range c.Removed {
		written(key)
	}
	b.begun = !b.empty()
}
