package perservice

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/notify"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// Options configures a Collector. The functions are those of a dataplane and of an
// engine.
type Options struct {
	// Off leaves only the metrics that are not of single Services.
	Off bool
	// Limit is how many Services have series of their own.
	Limit int

	// Traffic reads the counters of the kernel; nil in a mode that has none.
	Traffic dataplane.TrafficFunc
	// Evidence returns what Services are planned from, in the order of the names.
	Evidence func([]model.Name) []plan.Evidence

	// Refused is called with packets that a Service refused between two reads of the
	// counters, the zero Name for packets to no frontend; nil if no one wants to know.
	Refused func(service model.Name, why plan.Cause, packets uint64, since time.Time)

	// Verdicts returns whether clients of each Service get an answer; nil if nobody knows.
	Verdicts func() map[model.Name]verdict.Service

	// Answers returns what traffic shows of endpoints; nil if nothing can be seen.
	Answers func() map[evidence.To]evidence.Report

	Logger logr.Logger
	Clock  clock.PassiveClock // nil for the real one
}

// Collector collects the metrics of all Services.
type Collector struct {
	Options
	queue *notify.Mailbox[[]*engine.Commit] // not processed yet

	mu       sync.Mutex // never taken by the engine
	services services
	kernel   kernelReader
	outdated map[model.Name]struct{} // Services whose endpoints must be counted again
}

// New returns a Collector that knows no Service.
func New(o Options) *Collector {
	o.Clock = cmp.Or[clock.PassiveClock](o.Clock, clock.RealClock{})
	return &Collector{
		Options:  o,
		queue:    notify.NewMailbox[[]*engine.Commit](),
		services: newServices(o.Limit),
		outdated: map[model.Name]struct{}{},
	}
}

// Committed queues a commit for Run.
func (c *Collector) Committed(commit *engine.Commit) {
	c.queue.Put(func(queued *[]*engine.Commit) bool {
		*queued = append(*queued, commit)
		return true
	})
}

// Run processes commits until ctx ends, and then returns nil.
func (c *Collector) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.queue.Signal:
			c.processQueue()
		}
	}
}

// processQueue processes the queued commits. After the first one it reads the
// kernel's counters, which connections are counted from.
func (c *Collector) processQueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	if !c.services.based {
		c.readKernel(c.Clock.Now())
	}
}

// Refresh reads the counters of the kernel, unless they were read just before.
func (c *Collector) Refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	c.readKernel(c.Clock.Now())
}

// drain applies the queued commits.
func (c *Collector) drain() {
	for _, commit := range c.queue.Take() {
		c.services.apply(commit)
		if c.Off {
			continue
		}
		if commit.Events.Everything {
			for name := range c.services.byName {
				c.outdated[name] = struct{}{}
			}
		}
		for name := range commit.Events.Touched {
			c.outdated[name] = struct{}{}
		}
	}
}

// chunkSize is how many Services are read at a time: planning waits meanwhile.
const chunkSize = 256

// countEndpoints counts the endpoints of Services that changed since the last time.
func (c *Collector) countEndpoints() {
	names := make([]model.Name, 0, min(chunkSize, len(c.outdated)))
	count := func() {
		for i, evidence := range c.Evidence(names) {
			c.services.byName[names[i]].endpoints = evidence.EndpointCounts()
		}
		names = names[:0]
	}
	for name := range c.outdated {
		if c.services.byName[name] == nil {
			continue // removed, or without a frontend
		}
		if names = append(names, name); len(names) == chunkSize {
			count()
		}
	}
	if len(names) > 0 {
		count()
	}
	clear(c.outdated)
}
