//go:build linux

package iptables

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/notify"
	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Options configures a Dataplane.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
	// NetNS is an open network namespace to work in; 0 is the caller's own.
	NetNS int
	// Variant is which iptables to use; the zero value is that of the host.
	Variant iptables.Variant
}

// Dataplane programs iptables. It implements dataplane.Dataplane.
type Dataplane struct {
	logger  logr.Logger
	clock   clock.Clock
	netns   int
	variant iptables.Variant
	period  time.Duration // between two checks for writes of others

	progress func(dataplane.Progress) // nil if not wanted

	disturbed notify.Signal
	close     context.CancelFunc
	watching  sync.WaitGroup
	begin     sync.Once // of watching
	ctx       context.Context

	// commits guards everything below against concurrent readers.
	commits  dataplane.Commits
	driver   driver // nil until it is needed
	used     iptables.Variant
	batch    int // how many chains are best named in one input; 0 until it is known
	features iptables.Features
	families []model.Family
	monitor  iptables.Monitor
	// states are nil while the contents of the kernel are unknown.
	states  []*familyState
	foreign foreignWrites
	// failures and partialFailures count failed runs of iptables-restore since the start,
	// of reconciles and of changes.
	failures, partialFailures map[model.Family]uint64
	// forms are those of tables, which stay valid when states do not.
	forms map[iptables.Table]map[iptables.Fingerprint]iptables.Fingerprint
}

var (
	_ dataplane.Dataplane        = (*Dataplane)(nil)
	_ dataplane.Describer        = (*Dataplane)(nil)
	_ dataplane.ProgressReporter = (*Dataplane)(nil)
	_ dataplane.Portioner        = (*Dataplane)(nil)
)

// New reads and writes nothing: Check and Reconcile report what is missing on the
// host.
func New(o Options) *Dataplane {
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	d := &Dataplane{
		logger:    o.Logger,
		clock:     o.Clock,
		netns:     o.NetNS,
		variant:   o.Variant,
		period:    watchPeriod,
		disturbed: notify.NewSignal(),
		forms:     map[iptables.Table]map[iptables.Fingerprint]iptables.Fingerprint{},

		failures: map[model.Family]uint64{}, partialFailures: map[model.Family]uint64{},
	}
	d.ctx, d.close = context.WithCancel(context.Background())
	return d
}

// Close stops watching for writes of others and leaves the kernel as it is.
func (d *Dataplane) Close() error {
	d.close()
	d.watching.Wait()
	if d.monitor == nil {
		return nil
	}
	return d.monitor.Close()
}

// errCompare is why Repair leaves it to Reconcile.
var errCompare = errors.New("iptables lists tables as a whole")

// Repair always leaves it to Reconcile: a table can be listed only as a whole, and a
// whole listing is what Reconcile starts with.
func (d *Dataplane) Repair(context.Context) dataplane.Result {
	return dataplane.Result{Err: errCompare}
}

// Disturbed receives when another program changed our chains.
func (d *Dataplane) Disturbed() <-chan struct{} { return d.disturbed }

// OnProgress has report called at the start, after each run of iptables-restore and
// after each family. A table is mostly written in one run, so in a large cluster
// that is seldom.
func (d *Dataplane) OnProgress(report func(dataplane.Progress)) { d.progress = report }

func (d *Dataplane) locked(f func()) { d.commits.Locked(f) }

// With nft a portion of this size takes about as long as starting iptables-restore, up to some times that
// if its frontends are in chains with many others, which are written with them.
const portion = 250

// wholeTable is how many portions of a table of legacy are the whole table. Each restore
// copies that, so that smaller ones would make all changes take longer, and hardly any of them less.
const wholeTable = 8

// Portion returns how many elements are best written at a time.
func (d *Dataplane) Portion() int {
	if d.used != iptables.Legacy {
		return portion
	}
	rules := 0
	for _, s := range d.states {
		for _, t := range s.tables {
			rules = max(rules, t.rules())
		}
	}
	return max(portion, rules/wholeTable)
}

// programmed returns a frontend as it was last written, nil if it was not.
func (d *Dataplane) programmed(k plan.Key) *plan.Frontend {
	for _, s := range d.states {
		if f := s.frontends[k]; f != nil {
			return f
		}
	}
	return nil
}

// Apply writes a change. With nft it writes a part of large pools: with legacy that takes as long as
// all of it.
func (d *Dataplane) Apply(ctx context.Context, change *plan.Change) dataplane.Result {
	if d.states == nil {
		return dataplane.Result{Err: dataplane.ErrUnknown}
	}
	c := d.beginCommit(true)
	if d.used != iptables.Legacy {
		change, c.result.Left = dataplane.Steps(change, d.programmed)
	}
	set := c.possible(slices.Values(change.Set))
	affected := make([]int, len(d.states))
	for i, s := range d.states {
		affected[i] = s.affected(set, change)
		c.total += affected[i]
	}
	c.report(0)
	for i, s := range d.states {
		s.apply(change)
		if err := c.program(ctx, s, s.items(set, change.Removed)); err != nil {
			return c.end(err)
		}
		c.report(affected[i])
	}
	return c.end(nil)
}
