package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// figures are what a number of nodes cost.
type figures struct {
	nodes int
	// together is the start of all at once, rolling of one after the other.
	together, rolling phase
	memory            float64 // of the API server, at most, in MB
	steady            phase
	changes           int
	p50, p99          time.Duration // from the request to a node's commit
	missing           int           // changes that a node did not commit
	// restart is from the death of the API server until all nodes have a change that was made after it;
	// ready is when the API server was ready in it.
	restart phase
	ready   time.Duration
}

// phase is what a part of the measurement cost.
type phase struct {
	took        time.Duration
	server, own time.Duration // CPU time of the API server, and of all nodes
	bytes       int64         // received by all nodes
	lists       int           // of all nodes
	most        int           // lists of one kind that one node asked for
	watches     int
	refused     int // requests that were not answered, or not with what was asked for
}

// limit is the longest time for the slowest thing that the fleet does.
const limit = 5 * time.Minute

// fleet are running nodes.
type fleet struct {
	*cluster
	nodes []*node
}

// measure measures everything for a number of nodes.
func (c *cluster) measure(ctx context.Context, n int) (f figures, err error) {
	f.nodes = n
	if err := c.inParallel(ctx, n, func(ctx context.Context, i int) error { return c.createNode(ctx, nodeName(i), "192.0.2.10") }); err != nil {
		return f, err
	}
	fl := &fleet{cluster: c, nodes: make([]*node, n)}
	defer fl.stop()
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.server.PID()), []byte("5"), 0) // the peak of memory begins anew
	if f.together, err = fl.during(ctx, fl.startAll); err != nil {
		return f, err
	}
	fmt.Printf("  all are in sync after %.1f s\n", f.together.took.Seconds())
	if f.memory, err = memory(c.server.PID(), "VmHWM:"); err != nil {
		return f, err
	}
	if f.rolling, err = fl.during(ctx, fl.roll); err != nil {
		return f, err
	}
	for _, n := range fl.nodes {
		n.time()
	}
	f.steady, err = fl.during(ctx, func(ctx context.Context) error {
		var err error
		f.changes, err = c.changeFor(ctx, c.time)
		if err == nil {
			err = fl.await(ctx, c.changes.count()-1)
		}
		return err
	})
	if err != nil {
		return f, err
	}
	var took []time.Duration
	for _, n := range fl.nodes {
		times := n.times()
		f.missing += f.changes - len(times)
		took = append(took, times...)
	}
	f.p50, f.p99 = quantile(took, 0.5), quantile(took, 0.99)
	if !c.restart {
		return f, nil
	}
	f.restart, err = fl.during(ctx, func(ctx context.Context) error { return fl.restartServer(ctx, &f.ready) })
	return f, err
}

// during runs a part of the measurement, and returns what it cost.
func (f *fleet) during(ctx context.Context, do func(context.Context) error) (p phase, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pid := f.server.PID()
	server, err := cpuTime(pid)
	if err != nil {
		return p, err
	}
	before := map[*traffic]phase{}
	for _, n := range f.nodes {
		if n != nil {
			before[n.traffic] = count(n.traffic)
		}
	}
	own, begin := ownTime(), time.Now()
	if err := do(ctx); err != nil {
		return p, err
	}
	p.took, p.own = time.Since(begin), ownTime()-own
	now, err := cpuTime(f.server.PID())
	if err != nil {
		return p, err
	}
	if p.server = now; f.server.PID() == pid {
		p.server -= server
	}
	for _, n := range f.nodes {
		now, was := count(n.traffic), before[n.traffic]
		p.bytes += now.bytes - was.bytes
		p.lists += now.lists - was.lists
		p.watches += now.watches - was.watches
		p.refused += now.refused - was.refused
		p.most = max(p.most, now.most-was.most)
	}
	return p, nil
}

func count(t *traffic) (p phase) {
	p.bytes = t.received.Load()
	p.lists, p.most = t.lists()
	p.watches, p.refused = t.count("watch "), t.count("refused ")
	return p
}

func (f *fleet) startAll(ctx context.Context) error {
	for i := range f.nodes {
		n, err := f.startNode(nodeName(i), newTraffic())
		if err != nil {
			return err
		}
		f.nodes[i] = n
	}
	return f.each(func(n *node) error { return n.awaitSync(ctx) })
}

// each calls a function for all nodes at the same time.
func (f *fleet) each(do func(*node) error) error {
	var group errgroup.Group
	for _, n := range f.nodes {
		group.Go(func() error { return do(n) })
	}
	return group.Wait()
}

// roll replaces each node after the one before is in sync.
func (f *fleet) roll(ctx context.Context) error {
	for i, old := range f.nodes {
		old.stop()
		n, err := f.startNode(nodeName(i), old.traffic)
		if err != nil {
			return err
		}
		f.nodes[i] = n
		if err := n.awaitSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await waits until all nodes have a change.
func (f *fleet) await(ctx context.Context, change int) error {
	return f.each(func(n *node) error {
		for !n.has(change) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("a node does not get change %d: %w", change, ctx.Err())
			case <-time.After(5 * time.Millisecond):
			}
		}
		return nil
	})
}

// restartServer kills the API server, starts it again, and waits until all nodes follow it.
func (f *fleet) restartServer(ctx context.Context, ready *time.Duration) error {
	begin := time.Now()
	if err := f.server.Kill(); err != nil {
		return err
	}
	for {
		err := f.server.Restart(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
		fmt.Println("  the API server did not start in time, trying again, as a kubelet would") // its own hooks have timeouts
	}
	*ready = time.Since(begin)
	n, err := f.change(ctx, 0)
	if err != nil {
		return err
	}
	return f.await(ctx, n)
}

func (f *fleet) stop() {
	for _, n := range f.nodes {
		if n != nil {
			n.cancel()
		}
	}
	for _, n := range f.nodes {
		if n != nil {
			n.running.Wait()
		}
	}
}

func nodeName(i int) string { return "fleet-" + strconv.Itoa(i) }

func ownTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // the kernel knows it
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// cpuTime returns the CPU time of a process.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const utime, stime, ticks = 11, 12, 100
	var sum time.Duration
	for _, field := range fields[utime : stime+1] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum, nil
}

// memory returns a line of a process's /proc/PID/status in MB.
func memory(pid int, key string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s of process %d", key, pid)
}
