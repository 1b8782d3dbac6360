package perservice

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/notify"
	"sluice/internal/plan"
)

// Options configures a Book. The functions are those of a dataplane and of an
// engine.
type Options struct {
	// Off leaves only what is not of single Services.
	Off bool
	// Limit is how many Services have series of their own.
	Limit int

	// Traffic tells what the kernel counts; nil in a mode that counts nothing.
	Traffic dataplane.TrafficFunc
	// Evidence tells what Services are planned from, in the order of the names.
	Evidence func([]model.Name) []plan.Evidence

	Logger logr.Logger
	Clock  clock.PassiveClock // nil for the real one
}

// Book keeps the numbers of all Services.
type Book struct {
	Options
	commits *notify.Mailbox[[]*engine.Commit] // that nobody has worked off

	mu       sync.Mutex // not taken by the engine
	ledger   ledger
	kernel   kernelReader
	outdated map[model.Name]struct{} // Services whose endpoints are to be counted again
}

// New returns a Book that knows no Service.
func New(o Options) *Book {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Book{
		Options:  o,
		commits:  notify.NewMailbox[[]*engine.Commit](),
		ledger:   newLedger(o.Limit),
		outdated: map[model.Name]struct{}{},
	}
}

// Committed has Run take in a commit.
func (b *Book) Committed(c *engine.Commit) {
	b.commits.Put(func(all *[]*engine.Commit) bool {
		*all = append(*all, c)
		return true
	})
}

// Run works until ctx ends, and then returns nil.
func (b *Book) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.commits.Signal:
			b.keepUp()
		}
	}
}

// keepUp works off commits. After the first one it looks where the kernel's
// counters stand, from where connections are counted.
func (b *Book) keepUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.absorb()
	if !b.ledger.based {
		b.readKernel(b.Clock.Now())
	}
}

// absorb takes in what the engine told.
func (b *Book) absorb() {
	for _, c := range b.commits.Take() {
		b.ledger.follow(c)
		if b.Off {
			continue
		}
		if c.Events.Everything {
			for name := range b.ledger.services {
				b.outdated[name] = struct{}{}
			}
		}
		for name := range c.Events.Touched {
			b.outdated[name] = struct{}{}
		}
	}
}

// lot is how many Services are looked at at a time: planning waits meanwhile.
const lot = 256

// countEndpoints counts the endpoints of Services that look different since
// the last time.
func (b *Book) countEndpoints() {
	names := make([]model.Name, 0, min(lot, len(b.outdated)))
	count := func() {
		for i, evidence := range b.Evidence(names) {
			b.ledger.services[names[i]].endpoints = evidence.EndpointCounts()
		}
		names = names[:0]
	}
	for name := range b.outdated {
		if b.ledger.services[name] == nil {
			continue // it is gone, or has no frontend
		}
		if names = append(names, name); len(names) == lot {
			count()
		}
	}
	if len(names) > 0 {
		count()
	}
	clear(b.outdated)
}
