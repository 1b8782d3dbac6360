package iptables

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/notify"
	"sluice/internal/plan"
)

// Options are what a Dataplane needs to know.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
	// NetNS is an open network namespace to work in; 0 is the caller's own.
	NetNS int
	// Variant is which iptables to use; the zero value finds out.
	Variant Variant
}

// Dataplane programs iptables. It implements dataplane.Dataplane.
type Dataplane struct {
	logger  logr.Logger
	clock   clock.Clock
	netns   int
	variant Variant
	period  time.Duration // between two looks whether somebody else wrote

	// progress is told how far a piece of writing is, nil if nobody asks.
	progress func(dataplane.Progress)

	disturbed notify.Signal
	close     context.CancelFunc
	watching  sync.WaitGroup
	begin     sync.Once // of watching
	ctx       context.Context

	// mu guards all below against those who look while one writes. It is not
	// held while a program runs.
	mu       sync.Mutex
	host     host // nil until it is needed
	used     Variant
	batch    int // how many chains are best named in one input; 0 until it is known
	features features
	families []model.Family
	stamper  stamper
	// sides are nil while it is not known what the kernel holds.
	sides []*side
	watch watch
	stats counts
	// forms are those of tables, which outlive what is known of the kernel.
	forms map[Table]map[print]print
}

var (
	_ dataplane.Dataplane   = (*Dataplane)(nil)
	_ dataplane.Describer   = (*Dataplane)(nil)
	_ dataplane.Progressive = (*Dataplane)(nil)
)

// errUnknown is the answer to Apply without a successful Reconcile before it.
var errUnknown = errors.New("what the kernel holds is not known: reconcile first")

// New reads and writes nothing: what is missing on the host is told by Check,
// and by Reconcile.
func New(o Options) (*Dataplane, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	d := &Dataplane{
		logger:    o.Logger,
		clock:     o.Clock,
		netns:     o.NetNS,
		variant:   o.Variant,
		period:    watchPeriod,
		disturbed: notify.NewSignal(),
		stats:     newCounts(),
		forms:     map[Table]map[print]print{},
	}
	d.ctx, d.close = context.WithCancel(context.Background())
	return d, nil
}

// Close ends the watch for others and leaves the kernel as it is.
func (d *Dataplane) Close() error {
	d.close()
	d.watching.Wait()
	if d.stamper == nil {
		return nil
	}
	return d.stamper.Close()
}

// errCompare is why Repair leaves it to Reconcile: listing a table tells everything
// about it, and there is no way to ask for less.
var errCompare = errors.New("iptables lists tables as a whole")

// Repair always leaves it to Reconcile.
func (d *Dataplane) Repair(context.Context) dataplane.Result {
	return dataplane.Result{Err: errCompare}
}

// Disturbed receives when somebody else changed our chains.
func (d *Dataplane) Disturbed() <-chan struct{} { return d.disturbed }

// OnProgress has report told at the start, after each run of iptables-restore
// and after each family how many frontends are written. A table is written in
// one piece, so in a large cluster that is seldom.
func (d *Dataplane) OnProgress(report func(dataplane.Progress)) { d.progress = report }

// note changes what others look at.
func (d *Dataplane) note(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *Dataplane) forget() { d.note(func() { d.sides = nil }) }

// Apply writes a change.
func (d *Dataplane) Apply(ctx context.Context, c *plan.Change) dataplane.Result {
	if d.sides == nil {
		return dataplane.Result{Err: errUnknown}
	}
	r := d.startRound()
	r.partial = true
	set := r.possible(slices.Values(c.Set))
	todo := make([]int, len(d.sides))
	for i, s := range d.sides {
		todo[i] = s.affected(set, c)
		r.total += todo[i]
	}
	r.tell()
	for i, s := range d.sides {
		if c.Settings != nil {
			s.world.configure(*c.Settings)
		}
		for _, port := range c.HealthPortsRemoved {
			s.world.setHealthPort(port, false)
		}
		for _, port := range c.HealthPortsAdded {
			s.world.setHealthPort(port, true)
		}
		if err := r.program(ctx, s, s.items(set, c.Removed)); err != nil {
			return r.end(err)
		}
		r.finish(todo[i])
	}
	return r.end(nil)
}

// affected counts the frontends of a family that a change has to do with. The
// settings are in the rules of all.
func (s *side) affected(set []*plan.Frontend, c *plan.Change) int {
	n := countOf(s.family, set)
	for _, k := range c.Removed {
		if k.Family() == s.family {
			n++
		}
	}
	if c.Settings != nil {
		n = max(n, len(s.frontends))
	}
	return n
}

// countOf counts the frontends of a family.
func countOf(f model.Family, frontends []*plan.Frontend) int {
	n := 0
	for _, fe := range frontends {
		if fe.Family() == f {
			n++
		}
	}
	return n
}

// errNoFamily says that a family cannot be had on this host.
var errNoFamily = errors.New("there is no iptables for its IP family here (install ip6tables, and use a kernel with it)")

// possible are the frontends that can be programmed on this host. The others
// are noted as failed.
func (r *round) possible(frontends iter.Seq[*plan.Frontend]) []*plan.Frontend {
	var list []*plan.Frontend
	for f := range frontends {
		err := r.d.features.lacks(f)
		if !slices.Contains(r.d.families, f.Family()) {
			err = errNoFamily
		}
		if err != nil {
			r.fail(f.Key, err)
			continue
		}
		list = append(list, f)
	}
	return list
}

func (d *Dataplane) startRound() *round {
	d.listen(false)
	d.note(func() {
		d.watch.round++
		d.watch.writing = true
		for _, s := range d.sides {
			for _, t := range s.tables {
				t.written = 0
			}
		}
	})
	return &round{d: d, failed: map[plan.Key]error{}}
}

// listen starts and stops to listen to what others do.
func (d *Dataplane) listen(on bool) {
	if d.stamper == nil {
		return // before the first Reconcile
	}
	if err := d.stamper.listen(d.ctx, on); err != nil {
		d.logger.V(1).Info("Cannot listen for nftables notifications", "reason", err.Error())
	}
}

// end says what came of a round. After an error it is not known what the kernel
// holds.
func (r *round) end(err error) dataplane.Result {
	r.d.listen(true)
	r.d.note(func() {
		r.d.watch.writing = false
		if err != nil {
			r.d.sides = nil
		}
	})
	r.result.Err = err
	if len(r.failed) > 0 {
		r.result.Failed = r.failed
	}
	return r.result
}

// Reconcile lists our tables, adopts what is right, and mends the rest.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	d.forget()
	r := d.startRound()
	if err := d.prepare(ctx); err != nil {
		return r.end(err)
	}
	asleep, err := d.stamper.asleep(ctx)
	if err == nil {
		err = d.stamper.wake(ctx, asleep)
	}
	if err != nil {
		return r.end(fmt.Errorf("waking the tables of iptables up: %w", err))
	}
	stamp, err := d.stamper.stamp(ctx)
	if err != nil {
		return r.end(fmt.Errorf("reading the state of iptables: %w", err))
	}
	d.note(func() { d.watch.known, d.watch.suspicious = stamp, false })
	frontends := r.possible(maps.Values(desired.Frontends))
	r.total = len(frontends)
	r.tell()
	var sides []*side
	for _, f := range d.families {
		if !desired.Settings.Serves(f) {
			if err := d.cleanFamily(ctx, f); err != nil {
				return r.end(err)
			}
			continue
		}
		s := newSide(f, d.features)
		if err := r.reconcile(ctx, s, desired, frontends); err != nil {
			return r.end(err)
		}
		r.finish(countOf(f, frontends))
		sides = append(sides, s)
	}
	d.note(func() { d.sides = sides })
	d.begin.Do(func() { d.watching.Go(d.watchOthers) })
	return r.end(nil)
}

func (r *round) reconcile(ctx context.Context, s *side, desired *plan.Desired, frontends []*plan.Frontend) error {
	for _, t := range s.tables {
		l, err := r.d.host.list(ctx, t.Table)
		if err != nil {
			return err
		}
		t.forms = r.d.formsOf(t.Table)
		t.take(l)
	}
	s.world.configure(desired.Settings)
	for _, h := range desired.HealthChecks {
		s.world.setHealthPort(h.Port, true)
	}
	return r.adopt(ctx, s, s.items(frontends, nil))
}

// formsOf are the forms in which iptables was seen to print chains of a table.
func (d *Dataplane) formsOf(t Table) map[print]print {
	if d.forms[t] == nil {
		d.forms[t] = map[print]print{}
	}
	return d.forms[t]
}
