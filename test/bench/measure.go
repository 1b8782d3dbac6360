//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// figures are the results of one workload.
type figures struct {
	Cold                 time.Duration
	User, System         time.Duration // of this process, until the cold start was committed
	Children             time.Duration // of the programs that it ran until then
	Peak                 int64         // bytes resident, of this process, at that time
	Add, Remove, Replace latency
	Restart              time.Duration
	RestartTransactions  int
	// Compared is how long it took after that until what the restart put off was compared, and Meanwhile
	// is how long changes took until then.
	Compared  time.Duration
	Meanwhile latency
}

// latency is the duration of single changes, and the CPU time of one: of this
// process, and of the commands that it ran.
type latency struct {
	Count         int
	P50, P99      time.Duration
	Own, Children time.Duration
}

func (l latency) String() string {
	return fmt.Sprintf("%s / %s", ms(l.P50), ms(l.P99))
}

func measure(w workload, changes int, profile, profileOf string) (figures, error) {
	var f figures
	cluster := newCluster(w)
	events := cluster.events()
	debug.FreeOSMemory()

	stopProfile, err := startProfile(profile)
	if err != nil {
		return f, err
	}
	p, err := start(w.Mode, events)
	stopProfile()
	if err != nil {
		return f, err
	}
	f.Cold = p.first
	f.User, f.System = cpuTime(syscall.RUSAGE_SELF)
	user, system := cpuTime(syscall.RUSAGE_CHILDREN)
	f.Children = user + system
	if f.Peak, err = peakMemory(); err != nil {
		return f, err
	}
	if stopProfile, err = startProfile(profileOf); err != nil {
		return f, err
	}
	if changes > 0 {
		// The same number of each, so that the end is like the beginning.
		f.Add = p.each(changes, changesTime, cluster.added)
		f.Replace = p.each(f.Add.Count, noLimit, cluster.replaced)
		f.Remove = p.each(f.Add.Count, noLimit, cluster.removed)
	}
	stopProfile()
	p.stop()

	p, err = start(w.Mode, events)
	if err != nil {
		return f, err
	}
	defer p.stop()
	f.Restart, f.RestartTransactions = p.first, p.firstResult.Transactions
	if p.firstResult.Unread {
		f.Meanwhile = p.until(p.compared, cluster.added)
		f.Compared = time.Since(p.began) - p.first
	}
	return f, nil
}

func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, pprof.StartCPUProfile(f)
}

// pipe is a running engine with its dataplane.
type pipe struct {
	engine      *engine.Engine
	dataplane   dataplane.Dataplane
	commits     chan dataplane.Result
	first       time.Duration
	began       time.Time
	compared    chan struct{} // closed when nothing is left to compare
	firstResult dataplane.Result
	cancel      context.CancelFunc
	ended       chan struct{}
}

// start passes the events to the engine and waits until they are in the kernel.
func start(mode string, events []model.Event, adjust ...func(*plan.Config)) (*pipe, error) {
	return startObserved(mode, events, nil, adjust...)
}

// startObserved is start with more observers.
func startObserved(mode string, events []model.Event, observers []engine.Observer, adjust ...func(*plan.Config)) (*pipe, error) {
	m, err := modeOf(mode)
	if err != nil {
		return nil, err
	}
	d, err := open(mode)
	if err != nil {
		return nil, err
	}
	config := plan.Config{
		NodeName:      "bench",
		DetectLocal:   plan.DetectClusterCIDR,
		ClusterCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		MasqueradeBit: 14,
		DropInvalid:   true,
	}
	if m.Adjust != nil {
		m.Adjust(&config)
	}
	for _, f := range adjust {
		f(&config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pipe{dataplane: d, commits: make(chan dataplane.Result, 1), compared: make(chan struct{}), cancel: cancel, ended: make(chan struct{})}
	p.engine = engine.New(engine.Options{
		Planner:    plan.New(config),
		Dataplane:  d,
		Logger:     logr.Discard(),
		SyncPeriod: 10 * time.Second,
	})
	compared := sync.OnceFunc(func() { close(p.compared) })
	p.engine.Observe(engine.ObserverFunc(func(c *engine.Commit) {
		if !c.Comparing {
			compared()
		}
		if p.first == 0 || !c.Change.Empty() { // repairs have no change
			p.commits <- c.Result
		}
	}))
	p.engine.Observe(observers...)
	p.began = time.Now()
	go func() {
		defer close(p.ended)
		p.engine.Run(ctx)
	}()
	p.engine.Update(events...)
	p.engine.Synced()
	p.firstResult = <-p.commits
	p.first = time.Since(p.began)
	if len(p.firstResult.Failed) > 0 {
		return nil, fmt.Errorf("the kernel refused %d frontends", len(p.firstResult.Failed))
	}
	return p, nil
}

func (p *pipe) stop() {
	p.cancel()
	<-p.ended
	p.dataplane.Close()
}

// changesTime limits how long changes of the first kind are measured.
const changesTime = 10 * time.Second

// noLimit leaves it to the limit of the whole workload.
const noLimit = time.Hour

// each measures changes one at a time, from the engine to the commit: that many, or
// as many as there is time for.
func (p *pipe) each(most int, limit time.Duration, change func(i int) model.Event) latency {
	deadline := time.Now().Add(limit)
	return p.while(func(n int) bool { return n < most && time.Now().Before(deadline) }, change)
}

// until measures changes one at a time until a channel is closed, and at least one.
func (p *pipe) until(done chan struct{}, change func(i int) model.Event) latency {
	return p.while(func(n int) bool {
		select {
		case <-done:
			return n == 0
		default:
			return true
		}
	}, change)
}

// while measures changes one at a time, as long as there should be more than that many.
func (p *pipe) while(more func(n int) bool, change func(i int) model.Event) latency {
	var took []time.Duration
	own, children := totalTime(syscall.RUSAGE_SELF), totalTime(syscall.RUSAGE_CHILDREN)
	for more(len(took)) {
		e := change(len(took))
		begin := time.Now()
		p.engine.Update(e)
		<-p.commits
		took = append(took, time.Since(begin))
	}
	n := time.Duration(len(took))
	own, children = totalTime(syscall.RUSAGE_SELF)-own, totalTime(syscall.RUSAGE_CHILDREN)-children
	slices.Sort(took)
	return latency{Count: len(took), P50: took[n/2], P99: took[n*99/100], Own: own / n, Children: children / n}
}

// cpuTime returns the CPU time of this process, or of the commands that it ran.
func cpuTime(who int) (user, system time.Duration) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(who, &usage); err != nil {
		return 0, 0 // the kernel knows both sorts
	}
	return time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano())
}

func totalTime(who int) time.Duration {
	user, system := cpuTime(who)
	return user + system
}

func peakMemory() (int64, error) { return memoryOf("VmHWM:") }

// memoryOf returns a line of /proc/self/status in bytes.
func memoryOf(key string) (int64, error) { return lineOf("/proc/self/status", key) }

// lineOf returns a line of a file, which is in kilobytes, in bytes.
func lineOf(file, key string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in %s", key, file)
}
