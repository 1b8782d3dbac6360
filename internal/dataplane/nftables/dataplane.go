package nftables

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/nft"
	"sluice/internal/notify"
	"sluice/internal/plan"
)

// Options are what a Dataplane needs to know.
type Options struct {
	Logger logr.Logger
	// NetNS is an open network namespace to work in; 0 is the caller's own.
	NetNS int
	// AnyKernel has Check accept kernels that may be too old, for somebody who
	// knows better: distributions bring newer features to older kernels.
	AnyKernel bool
	// SendBuffer is how many bytes the kernel shall take in a transaction; 0 for as
	// many as are useful. It may grant less.
	SendBuffer int
}

// Dataplane programs nftables. It implements dataplane.Dataplane.
type Dataplane struct {
	logger    logr.Logger
	anyKernel bool
	// writer and reader are separate so that a long dump does not hold up a
	// change.
	writer, reader *nft.Conn
	watch          *watch
	clients        clients

	// progress is told how far a piece of writing is, nil if nobody asks.
	progress func(dataplane.Progress)

	// bound is how many elements a transaction may have.
	bound int

	// commit is writer's, and replaced by tests that need the kernel to refuse.
	commit func(context.Context, *nft.Batch) error

	// verifying has a token of Verify, which runs once at a time.
	verifying chan struct{}
	settled   uint64 // the doubts of watch that Verify has looked into
	// stop ends what goes on beside, and waits for it.
	stop func()

	// commits guards the fields below, and the tables' maps of frontends, against
	// concurrent readers.
	commits dataplane.Commits
	// tables is nil while the contents of the kernel are unknown.
	tables []*table
	// former are the tables as they were last known, while they are not: they say
	// what the kernel's counters mean.
	former []*table

	// banked is, by frontend, what its counters said that its elements do not say
	// any more, because they lead elsewhere now. It is guarded by mu.
	banked map[plan.Key]dataplane.Traffic

	// refused are the frontends that the kernel would not have even right after
	// it was read: their refusal is no sign that somebody else was at work.
	refused map[plan.Key]struct{}
}

var (
	_ dataplane.Dataplane        = (*Dataplane)(nil)
	_ dataplane.ProgressReporter = (*Dataplane)(nil)
	_ dataplane.Describer        = (*Dataplane)(nil)
)

// New opens the sockets. It reads and writes nothing.
func New(o Options) (_ *Dataplane, err error) {
	d := &Dataplane{logger: o.Logger, anyKernel: o.AnyKernel, stop: func() {},
		verifying: make(chan struct{}, 1),
		clients:   clients{todo: map[*table]*clientMoves{}, wake: notify.NewSignal()},
		banked:    map[plan.Key]dataplane.Traffic{}, refused: map[plan.Key]struct{}{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	for conn, buffer := range map[**nft.Conn]int{
		&d.writer: cmp.Or(o.SendBuffer, nft.SendBuffer), &d.reader: nft.SendBuffer, &d.clients.conn: nft.SendBuffer,
	} {
		if *conn, err = nft.Dial(o.NetNS, buffer); err != nil {
			return nil, err
		}
	}
	d.commit = d.writer.Commit
	bytes, err := d.writer.MaxBatch()
	if err != nil {
		return nil, err
	}
	d.bound = boundFor(bytes)
	if d.watch, err = newWatch(o.NetNS, o.Logger, d.writer); err != nil {
		return nil, err
	}
	d.goBeside(d.settleDoubts, d.followClients)
	return d, nil
}

// goBeside starts what goes on beside the writing, until Close.
func (d *Dataplane) goBeside(tasks ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	for _, task := range tasks {
		beside.Go(func() { task(ctx) })
	}
	d.stop = func() {
		cancel()
		beside.Wait()
	}
}

// Close closes the sockets and leaves the kernel as it is.
func (d *Dataplane) Close() (err error) {
	for _, conn := range []*nft.Conn{d.reader, d.clients.conn, d.writer} {
		if conn != nil { // whoever is reading very much notices that first
			err = errors.Join(err, conn.Close())
		}
	}
	if d.watch != nil {
		err = errors.Join(err, d.watch.close())
	}
	d.stop()
	return err
}

// OnProgress has report told after each transaction how many frontends those
// before it wrote.
func (d *Dataplane) OnProgress(report func(dataplane.Progress)) { d.progress = report }

// Disturbed receives when somebody else changed our tables.
func (d *Dataplane) Disturbed() <-chan struct{} { return d.watch.disturbed }

// ourTables finds the family's tables with one of our names.
func ourTables(ctx context.Context, c *nft.Conn, l *layout) ([]nft.Table, error) {
	tables, err := c.Tables(ctx, l.nf)
	if err != nil {
		return nil, err
	}
	ours := slices.DeleteFunc(tables, func(t nft.Table) bool { return !slices.Contains(tableNames[:], t.Name) })
	slices.SortFunc(ours, func(a, b nft.Table) int { return strings.Compare(a.Name, b.Name) })
	return ours, nil
}

// forget drops the mirror: the contents of the kernel are unknown.
func (d *Dataplane) forget() {
	d.commits.Locked(func() {
		if d.tables != nil {
			d.former, d.tables = d.tables, nil
		}
	})
}

// Apply writes a change.
func (d *Dataplane) Apply(ctx context.Context, c *plan.Change) dataplane.Result {
	if d.tables == nil {
		return dataplane.Result{Err: dataplane.ErrUnknown}
	}
	d.commits.Begin()
	r := &round{d: d, tables: d.tables}
	for _, t := range d.tables {
		if c.Settings != nil {
			t.configure(*c.Settings)
		}
		t.eachAddr(slices.Values(c.ClusterIPsAdded), t.clusterIPs.Hold)
		t.eachAddr(slices.Values(c.ClusterIPsRemoved), t.clusterIPs.Release)
		r.items = append(r.items, t.items(c)...)
	}
	if err := d.carryCounters(ctx, r.items); err != nil {
		d.logger.V(1).Info("Connection counters start anew", "reason", err.Error())
	}
	d.watch.during(ctx, sizeOf(r.items), func() { r.run(ctx) })
	if r.result.Err != nil {
		d.forget()
	}
	d.commits.End()
	if r.result.Err != nil {
		return r.result
	}
	if d.followItems(r.items) {
		d.clients.wait(ctx)
	}
	return r.result
}

// items turns the part of a change that is of the table's family into items.
func (t *table) items(c *plan.Change) []*item {
	var items []*item
	for _, k := range c.Removed {
		if old := t.frontends[k]; old != nil {
			t.exchange(old, nil)
			items = append(items, &item{table: t, key: k, now: &old.programmed, old: old})
		}
	}
	for f := range dataplane.OfFamily(t.family, (*plan.Frontend).Family, slices.Values(c.Set)) {
		it := &item{table: t, key: f.Key, old: t.frontends[f.Key]}
		if it.old != nil {
			it.now = &it.old.programmed
		}
		it.new = t.compile(f, it.now)
		t.exchange(it.old, it.new)
		items = append(items, it)
	}
	return items
}

// sizeOf estimates how many elements the items will write.
func sizeOf(items []*item) int {
	n := 0
	for _, it := range items {
		n++
		if it.new != nil && it.now == nil {
			n += it.new.size()
		}
		if it.new == nil && it.now != nil {
			n += it.now.size()
		}
	}
	return n
}
