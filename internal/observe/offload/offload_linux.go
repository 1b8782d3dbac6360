package offload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/notify"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack"
	"sluice/internal/plan"
)

const (
	// settle is how long changes are gathered.
	settle = 100 * time.Millisecond
	// lookEvery is how often the kernel is looked at for what another program has changed, and retryEvery how often
	// it is tried whether a kernel without flow tables has some now: it looks for modules each time.
	lookEvery  = 5 * time.Second
	retryEvery = 30 * time.Second
	// askEvery is how often all endpoints are asked for at most, and countEvery connections. Either may take the share
	// 1/costFactor of a core.
	askEvery   = time.Second
	countEvery = 10 * time.Second
	costFactor = 100
)

// Options configures an Offload.
type Options struct {
	Logger    logr.Logger
	Clock     clock.Clock
	Offloader dataplane.Offloader
	// Report is called with the State when it may have changed.
	Report func(State)
}

// State is what flow tables do.
type State struct {
	Want dataplane.FlowTable
	// Devices are where packets come in that flow tables may forward.
	Devices []string
	// Connections are how many the flow tables of the node forwarded when they were counted, by family.
	Connections map[model.Family]int
	Counted     time.Time
	// Err is why nothing, or not all of what is wanted, is offloaded.
	Err error
}

// Offload keeps the flow tables.
type Offload struct {
	Options
	changed *notify.Mailbox[change]
	moved   notify.Signal // devices or routes have changed
	// connections counts; a field for tests.
	connections func(context.Context) (map[model.Family]int, time.Duration, error)

	mu    sync.Mutex
	want  dataplane.FlowTable
	state State

	// The rest belongs to the goroutine of Run.
	inForce  dataplane.FlowTable
	settings plan.Settings
	pending  map[plan.Key]bool // that the Offloader was not told; nil before the first time
	// endpoints are those of scope devices, and routes what is known of them.
	endpoints map[netip.Addr]struct{}
	routes    routes
	askAgain  bool // all of them
	// notBefore is when to ask again at the earliest, retryAt when to try a kernel without flow tables again.
	notBefore, retryAt, countAt time.Time
	failing                     string
}

// change is what happened since it was taken.
type change struct {
	begun     bool // there was a commit
	settings  bool
	frontends map[plan.Key]bool // and whether they are there
	endpoints map[netip.Addr]struct{}
}

// New returns an Offload that does nothing before Run.
func New(o Options) *Offload {
	return &Offload{Options: o, changed: notify.NewMailbox[change](), moved: notify.NewSignal(), connections: countOffloaded}
}

// Set says what is wanted from now on.
func (o *Offload) Set(want dataplane.FlowTable) {
	o.mu.Lock()
	same := o.want == want
	o.want = want
	o.mu.Unlock()
	if !same {
		o.changed.Put(func(c *change) bool { c.settings = true; return true })
	}
}

func (o *Offload) wanted() dataplane.FlowTable {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.want
}

// State returns what flow tables do now.
func (o *Offload) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// Committed implements engine.Observer.
func (o *Offload) Committed(c *engine.Commit) {
	want := o.wanted()
	o.changed.Put(func(to *change) (wake bool) {
		wake = !to.begun && c.Kind == engine.Reconcile
		to.begun = true
		if c.Change.Settings != nil {
			to.settings, wake = true, true
		}
		if !want.On() {
			return wake
		}
		for before, now := range c.Change.Frontends() {
			if (before == nil) != (now == nil) {
				to.note(before, now)
				wake = true
			}
			if want.Scope == dataplane.FlowTableDevices && now != nil && to.noteEndpoints(now) {
				wake = true
			}
		}
		return wake
	})
}

func (c *change) note(before, now *plan.Frontend) {
	if c.frontends == nil {
		c.frontends = map[plan.Key]bool{}
	}
	if now != nil {
		c.frontends[now.Key] = true
		return
	}
	c.frontends[before.Key] = false
}

func (c *change) noteEndpoints(f *plan.Frontend) (some bool) {
	if c.endpoints == nil {
		c.endpoints = map[netip.Addr]struct{}{}
	}
	for _, r := range []*plan.Route{&f.Route, f.Outside} {
		if r == nil {
			continue
		}
		for _, e := range r.Endpoints {
			c.endpoints[e.Addr()] = struct{}{}
			some = true
		}
	}
	return some
}

// Run keeps the flow tables until ctx ends, and leaves them in the kernel. It begins with the first commit, and is
// called once.
func (o *Offload) Run(ctx context.Context, e engine.Inspector) error {
	var watching sync.WaitGroup
	watch, stop := context.WithCancel(ctx)
	defer watching.Wait()
	defer stop()
	begun, watched := false, false
	for {
		var tick <-chan time.Time
		if begun && (o.inForce.On() || o.failing != "") {
			tick = o.Clock.After(lookEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case <-o.changed.Signal:
			o.pause(ctx, settle)
		case <-o.moved:
			o.pause(ctx, max(settle, o.notBefore.Sub(o.Clock.Now())))
			o.askAgain = true
		}
		c := o.changed.Take()
		begun = begun || c.begun
		if !begun {
			continue // until then an earlier process's are as good as ours
		}
		o.take(e, c)
		if o.inForce.On() && !watched {
			watched = true
			watching.Go(func() { watchDevices(watch, o.Clock, o.moved.Notify) })
		}
		o.follow(ctx)
	}
}

func (o *Offload) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-o.Clock.After(d):
	}
}

// take takes over what changed.
func (o *Offload) take(e engine.Inspector, c change) {
	want := o.wanted()
	all := want != o.inForce || o.pending == nil
	if o.pending == nil {
		o.pending, o.endpoints = map[plan.Key]bool{}, map[netip.Addr]struct{}{}
	}
	if want != o.inForce {
		o.retryAt = time.Time{}
	}
	o.inForce = want
	maps.Copy(o.pending, c.frontends)
	maps.Copy(o.endpoints, c.endpoints)
	ask := want.Scope == dataplane.FlowTableDevices && (all || o.askAgain)
	if !all && !ask && !c.settings {
		return
	}
	if ask {
		clear(o.endpoints)
	}
	e.Inspect(func(v engine.View) {
		o.settings = v.Desired.Settings
		if !all && !ask || !want.On() {
			return
		}
		for key, f := range v.Desired.Frontends {
			if all {
				o.pending[key] = true
			}
			if ask {
				(&change{endpoints: o.endpoints}).noteEndpoints(f)
			}
		}
	})
}

// follow makes the flow tables as they should be.
func (o *Offload) follow(ctx context.Context) {
	if o.Clock.Now().Before(o.retryAt) {
		return
	}
	s := o.State()
	s.Want = o.inForce
	want := &dataplane.Offload{Changed: o.pending}
	var found error
	if s.Want.On() {
		want.Devices, found = o.devices()
		want.Families = slices.DeleteFunc(slices.Clone(model.Families[:]), func(f model.Family) bool { return !o.settings.Serves(f) })
	}
	var err error
	s.Devices, err = o.Offloader.Offload(ctx, want)
	if ctx.Err() != nil {
		return
	}
	o.pending = map[plan.Key]bool{}
	if errors.Is(err, dataplane.ErrNoFlowTables) {
		o.retryAt = o.Clock.Now().Add(retryEvery)
	}
	s.Err = cmp.Or(err, found)
	o.count(ctx, &s)
	o.report(s)
}

// devices returns those at which packets are to be forwarded, as far as they can be found.
func (o *Offload) devices() (names []string, err error) {
	begin := o.Clock.Now()
	o.notBefore = begin.Add(askEvery)
	if o.inForce.Device != "" {
		names, err = named(o.inForce.Device)
	} else {
		names, err = devicesOf(o.settings.PrimaryIPs)
	}
	if o.inForce.Scope != dataplane.FlowTableDevices {
		return names, err
	}
	if o.askAgain || o.routes == nil {
		o.routes, o.askAgain = routes{}, false
	}
	o.routes.ask(o.endpoints)
	to, listErr := o.routes.devices()
	now := o.Clock.Now()
	o.notBefore = now.Add(max(askEvery, costFactor*now.Sub(begin)))
	return append(names, to...), errors.Join(err, listErr)
}

// count counts connections, if that is due.
func (o *Offload) count(ctx context.Context, s *State) {
	now := o.Clock.Now()
	switch {
	case !s.Want.On() || len(s.Devices) == 0:
		s.Connections, s.Counted, o.countAt = nil, time.Time{}, time.Time{}
		return
	case now.Before(o.countAt):
		return
	}
	connections, cost, err := o.connections(ctx)
	if err != nil {
		o.Logger.V(1).Info("Connections that flow tables forward cannot be counted; trying again", "reason", err.Error())
	} else {
		s.Connections, s.Counted = connections, now
	}
	o.countAt = now.Add(max(countEvery, costFactor*cost))
}

func countOffloaded(ctx context.Context) (map[model.Family]int, time.Duration, error) {
	counts := map[model.Family]int{}
	cost, err := conntrack.Connections(ctx, 0, conntrack.Selection{Offloaded: true}, func(c conntrack.Connection) {
		counts[model.FamilyOf(c.Frontend.Addr())]++
	})
	return counts, cost, err
}

// report makes the state known, and logs what changes.
func (o *Offload) report(s State) {
	before := o.State()
	o.mu.Lock()
	o.state = s
	o.mu.Unlock()
	text := ""
	if s.Err != nil {
		text = s.Err.Error()
	}
	switch {
	case text != "" && text != o.failing:
		o.Logger.Info("Not all connections are forwarded by flow tables that should be; trying again",
			"flowTable", s.Want.String(), "devices", s.Devices, "reason", text)
	case text == "" && s.Want.On() && (!slices.Equal(before.Devices, s.Devices) || o.failing != ""):
		o.Logger.Info("Flow tables forward established connections", "flowTable", s.Want.String(), "devices", s.Devices)
	case text == "" && !s.Want.On() && before.Want.On():
		o.Logger.Info("Flow tables are off")
	}
	o.failing = text
	o.Report(s)
}

// Advisories are what the administrator of the node should mend.
func (o *Offload) Advisories() []model.Problem {
	s := o.State()
	if s.Err == nil {
		return nil
	}
	remedy := "the proxy tries again; if it lasts, set flowTable to off"
	switch {
	case errors.Is(s.Err, dataplane.ErrNoFlowTables):
		remedy = "use a kernel with the modules nf_flow_table, nf_flow_table_inet and nft_flow_offload, " +
			"or set flowTable to off; connections work as without"
	case errors.Is(s.Err, errNoDevice):
		remedy = "name the device where packets from outside come in: flowTable: outside:eth0"
	}
	return []model.Problem{{
		Object: model.Object{Kind: "Flow tables"}, Field: "--flow-table",
		Reason: fmt.Sprintf("%s: not all is offloaded: %v", s.Want, s.Err), Remedy: remedy,
	}}
}
