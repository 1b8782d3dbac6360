//go:build linux

package nftables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"sluice/internal/base/notify"
	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Options configures a Dataplane.
type Options struct {
	Logger logr.Logger
	// NetNS is an open network namespace to work in; 0 is the caller's own.
	NetNS int
	// Instance is what the proxy is called that serves a node beside others; empty for one that
	// serves it alone.
	Instance string
	// AnyKernel makes Check accept kernels that may be too old: distributions
	// backport features to older kernels.
	AnyKernel bool
	// SendBuffer is the maximum size of a transaction in bytes to ask the kernel for;
	// 0 is as much as is useful. The kernel may grant less.
	SendBuffer int
	// Uncounted leaves out the counters of connections and refusals, which cost each new connection.
	Uncounted bool
	// Target takes the connections of routes that are delegated; nil if none are.
	Target *Target
}

// Dataplane programs nftables. It implements dataplane.Dataplane.
type Dataplane struct {
	logger    logr.Logger
	anyKernel bool
	target    *Target
	uncounted bool
	layouts   map[model.Family]*layout
	names     [3]string // that our tables may have
	// writer and reader are separate so that a long dump does not delay a change.
	writer, reader *nft.Conn
	monitor        *monitor
	clients        clients
	witness
	*loopbackCounter
	*directState
	*offloader

	progress func(dataplane.Progress) // nil if not wanted

	// bound is how many elements a transaction may have.
	bound int
	// Of maps with more than most elements a restart reads a part later. adopted says that it did.
	most    int
	adopted bool

	// commit is writer's. Tests replace it to make the kernel refuse.
	commit func(context.Context, *nft.Batch) error

	// verifying is a semaphore of Verify, which runs once at a time.
	verifying chan struct{}
	verified  uint64 // the missed writes that Verify has accounted for
	// stop ends the background tasks and waits for them.
	stop func()

	// commits guards the fields below, and the tables' maps of frontends, against
	// concurrent readers.
	commits dataplane.Commits
	// tables is nil while the contents of the kernel are unknown.
	tables []*table
	// former are the tables as last known, while tables is nil: they say what the
	// kernel's counters mean.
	former []*table

	// carried is, by frontend, what its counters said before changes and its
	// elements no longer say, because they lead elsewhere now.
	carried map[plan.Key]dataplane.Traffic
	// transactions counts those that took effect: who reads several counters of a
	// frontend can tell by it whether they were replaced meanwhile.
	transactions uint64

	// refused are frontends that the kernel refused even right after it was read:
	// their refusal does not indicate foreign writes.
	refused map[plan.Key]struct{}
}

var (
	_ dataplane.Dataplane        = (*Dataplane)(nil)
	_ dataplane.ProgressReporter = (*Dataplane)(nil)
	_ dataplane.Describer        = (*Dataplane)(nil)
	_ dataplane.Witness          = (*Dataplane)(nil)
	_ dataplane.LoopbackCounter  = (*Dataplane)(nil)
	_ dataplane.DirectReturner   = (*Dataplane)(nil)
	_ dataplane.Offloader        = (*Dataplane)(nil)
)

// New opens the sockets. It reads and writes nothing.
func New(o Options) (_ *Dataplane, err error) {
	d := &Dataplane{logger: o.Logger, anyKernel: o.AnyKernel, target: o.Target, uncounted: o.Uncounted,
		names: tableNamesOf(o.Instance), stop: func() {}, layouts: map[model.Family]*layout{},
		verifying: make(chan struct{}, 1),
		clients:   clients{todo: map[*table]clientMoves{}, wake: notify.NewSignal()},
		witness:   newWitness(witnessTableOf(o.Instance)),

		loopbackCounter: newLoopbackCounter(loopbackTableOf(o.Instance)),
		directState:     newDirectState(directTableOf(o.Instance), o.NetNS),
		offloader:       newOffloader(flowTableOf(o.Instance), o.NetNS),

		carried: map[plan.Key]dataplane.Traffic{}, refused: map[plan.Key]struct{}{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	for conn, buffer := range map[**nft.Conn]int{
		&d.writer: cmp.Or(o.SendBuffer, nft.SendBuffer), &d.reader: nft.SendBuffer, &d.clients.conn: nft.SendBuffer,
		&d.witness.conn: nft.SendBuffer, &d.loopbackCounter.conn: nft.SendBuffer,
	} {
		if *conn, err = nft.Dial(o.NetNS, buffer); err != nil {
			return nil, err
		}
	}
	for _, f := range model.Families {
		d.layouts[f] = layoutFor(f, o.Uncounted)
	}
	d.commit = d.writer.Commit
	bytes, err := d.writer.MaxBatch()
	if err != nil {
		return nil, err
	}
	d.bound, d.most = boundFor(bytes), maxDump
	if d.monitor, err = newMonitor(o.NetNS, d.names[:], o.Logger, d.writer); err != nil {
		return nil, err
	}
	// It writes very many elements, of tables that are not looked at.
	d.directState.conn.opened = func(c *nft.Conn) error { return d.monitor.notifications.Ignore(d.writer, c) }
	d.stop = dataplane.Background(d.verifyMissed, d.followClients)
	return d, nil
}

// Close closes the sockets and leaves the kernel as it is.
func (d *Dataplane) Close() (err error) {
	for _, conn := range []*nft.Conn{d.reader, d.clients.conn, d.witness.conn, d.loopbackCounter.conn, d.writer} {
		if conn != nil { // a long dump ends by that
			err = errors.Join(err, conn.Close())
		}
	}
	if d.monitor != nil {
		err = errors.Join(err, d.monitor.close())
	}
	d.stop()
	return errors.Join(err, d.directState.conn.end(), d.offloader.conn.end())
}

// OnProgress has report called after each transaction, with the number of frontends
// that those before it wrote.
func (d *Dataplane) OnProgress(report func(dataplane.Progress)) { d.progress = report }

// Disturbed receives when another program changed our tables.
func (d *Dataplane) Disturbed() <-chan struct{} { return d.monitor.disturbed }

// ourTables returns the family's tables with one of our names.
func ourTables(ctx context.Context, c *nft.Conn, l *layout, names [3]string) ([]nft.Table, error) {
	tables, err := c.Tables(ctx, l.nf)
	if err != nil {
		return nil, err
	}
	ours := slices.DeleteFunc(tables, func(t nft.Table) bool { return !slices.Contains(names[:], t.Name) })
	slices.SortFunc(ours, func(a, b nft.Table) int { return strings.Compare(a.Name, b.Name) })
	return ours, nil
}

// Live reports whether packets pass through a table of ours.
func (d *Dataplane) Live(ctx context.Context) (bool, error) {
	for _, l := range layouts {
		tables, err := ourTables(ctx, d.writer, l, d.names)
		if err != nil || len(tables) > 0 {
			return len(tables) > 0, err
		}
	}
	return false, nil
}

// keepsTables marks a Dataplane, and those that contain one, for Remove.
func (d *Dataplane) keepsTables() {}

// forget drops the mirror: the contents of the kernel are unknown.
func (d *Dataplane) forget() {
	d.commits.Locked(func() {
		if d.tables != nil {
			d.former, d.tables = d.tables, nil
		}
	})
}

// Programmed returns a frontend as it was last written, nil if it was not.
func (d *Dataplane) Programmed(k plan.Key) *plan.Frontend {
	for _, t := range d.tables {
		if f := t.frontends[k]; f != nil {
			return f.Frontend
		}
	}
	return nil
}

// Apply writes a change. Of large pools it writes a part.
func (d *Dataplane) Apply(ctx context.Context, change *plan.Change) dataplane.Result {
	if d.tables == nil {
		return dataplane.Result{Err: dataplane.ErrUnknown}
	}
	d.commits.Begin()
	c := &commit{d: d, tables: d.tables}
	change, c.result.Left = dataplane.Steps(change, d.Programmed)
	if err := d.learn(ctx, change); err != nil {
		d.forget()
		d.commits.End()
		return dataplane.Result{Err: fmt.Errorf("reading what is to be changed: %w", err)}
	}
	for _, t := range d.tables {
		if change.Settings != nil {
			t.configure(*change.Settings)
		}
		t.eachAddr(slices.Values(change.ClusterIPsAdded), t.clusterIPs.Hold)
		t.eachAddr(slices.Values(change.ClusterIPsRemoved), t.clusterIPs.Release)
		c.items = append(c.items, t.items(change, &c.result)...)
	}
	if err := d.carryCounters(ctx, c.items); err != nil {
		d.logger.V(1).Info("Connection counters restart at zero", "reason", err.Error())
	}
	d.monitor.during(ctx, sizeOf(c.items), func() { c.run(ctx) })
	if c.result.Err != nil {
		d.forget()
	}
	d.commits.End()
	if c.result.Err != nil {
		return c.result
	}
	if d.followItems(c.items) {
		d.clients.wait(ctx)
	}
	return c.result
}

// items returns the part of a change that concerns the table's family, and adds to the result what
// it leaves out.
func (t *table) items(change *plan.Change, r *dataplane.Result) []*item {
	clear(t.shared)
	clear(t.begun)
	var items []*item
	set := dataplane.OfFamily(t.family, (*plan.Frontend).Family, slices.Values(change.Set))
	for pool := range t.pools(set) { // before those that lead to it
		old := t.frontends[pool.Key]
		if it := t.poolItem(pool, old, old.now()); it != nil {
			it.cut(poolPart)
			items = append(items, it)
			if it.new.begun {
				t.begun[pool.Key] = it
			}
		}
	}
	for _, k := range change.Removed {
		t.waitsNoMore(k)
		if old := t.frontends[k]; old != nil {
			t.replace(old, nil)
			now, _ := t.nowOf(old)
			items = append(items, &item{table: t, key: k, now: now, old: old})
		}
	}
	for f := range set {
		if pool := t.waitsFor(f); pool != nil {
			pool.waiting = append(pool.waiting, f.Key)
			t.left[f.Key] = pool.key
			if r.Left == nil {
				r.Left = map[plan.Key]struct{}{}
			}
			r.Left[f.Key] = struct{}{}
			continue
		}
		t.waitsNoMore(f.Key)
		for _, old := range t.overlapped(f.Key) {
			t.replace(old, nil)
			items = append(items, &item{table: t, key: old.Key, now: &old.programmed, old: old})
		}
		it := &item{table: t, key: f.Key, old: t.frontends[f.Key]}
		var was *frontend
		it.now, was = t.nowOf(it.old)
		it.new = t.compile(f, it.now, was)
		t.replace(it.old, it.new)
		items = append(items, it)
	}
	t.followRanges()
	return append(items, t.unusedPools()...)
}

// now is what the kernel holds of a frontend, nil for nothing.
func (f *frontend) now() *programmed {
	if f == nil {
		return nil
	}
	return &f.programmed
}
