package history

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/base/notify"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const (
	maxChanges  = 4096 // Events that are kept, other than refusals
	maxRefusals = 1024 // Events that are kept
	// maxPerCommit is how many Events a commit adds, so that a change of everything
	// does not displace all that happened before.
	maxPerCommit = 256
)

// Options configures a History.
type Options struct {
	// Inspect is that of the engine. It tells why an endpoint gets no connections, and which
	// Services have one that does not answer; nil if that need not be known.
	Inspect func(func(engine.View))
	System  plan.System        // what is programmed
	Clock   clock.PassiveClock // nil for the real one
}

// History remembers Events and the last commits.
type History struct {
	Options
	queue   *notify.Mailbox[[]*queuedCommit] // not processed yet
	started bool                             // a commit was queued; used by the engine's goroutine

	mu       sync.Mutex // never taken by the engine
	last     uint64     // ID of the last Event
	commits  []Commit   // oldest first
	changes  ring
	refusals ring
	refusing map[refusal]*refused
	failing  map[at]Kind // endpoints that do not answer
	begun    bool        // by the first commit
	settings *plan.Settings
}

// queuedCommit is a commit, and what is known of its Services only while it is new.
type queuedCommit struct {
	*engine.Commit
	// frontends are all those of the first Services that it changed, after it, and owners the Services of
	// those that the kernel refused.
	frontends map[model.Name][]*plan.Frontend
	owners    map[plan.Key]model.Name
}

// New returns a History of nothing.
func New(o Options) *History {
	o.Clock = cmp.Or[clock.PassiveClock](o.Clock, clock.RealClock{})
	if o.Inspect == nil {
		o.Inspect = func(func(engine.View)) {}
	}
	return &History{
		Options: o, queue: notify.NewMailbox[[]*queuedCommit](),
		changes: ring{most: maxChanges}, refusals: ring{most: maxRefusals}, refusing: map[refusal]*refused{}, failing: map[at]Kind{},
	}
}

// Committed queues a commit. It is processed by Run, or by the next reader.
func (h *History) Committed(c *engine.Commit) {
	kept := newQueuedCommit(c)
	if h.started { // to the first one everything is new
		kept.askFrontends()
	}
	h.started = true
	h.queue.Put(func(queued *[]*queuedCommit) bool {
		*queued = append(*queued, kept)
		return true
	})
}

func newQueuedCommit(c *engine.Commit) *queuedCommit {
	q := &queuedCommit{Commit: c, frontends: map[model.Name][]*plan.Frontend{}, owners: map[plan.Key]model.Name{}}
	for key := range c.Result.Failed {
		if f := cmp.Or(c.Desired.Frontends[key], c.Change.Before[key]); f != nil {
			q.owners[key] = f.Service
		}
	}
	return q
}

// askFrontends asks for the frontends of as many Services as Events can be recorded of.
func (c *queuedCommit) askFrontends() {
	for before, now := range c.Change.Frontends() {
		for _, f := range []*plan.Frontend{before, now} {
			if f == nil {
				continue
			}
			if _, asked := c.frontends[f.Service]; asked {
				continue
			}
			if len(c.frontends) == maxPerCommit {
				return
			}
			c.frontends[f.Service] = c.Frontends(f.Service)
		}
	}
}

// Run processes commits until ctx ends, and then returns nil.
func (h *History) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.queue.Signal:
			h.read(func() {})
		}
	}
}

// read processes what is queued and calls f.
func (h *History) read(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.queue.Take() {
		h.apply(c)
	}
	f()
}

// Commits returns the last commits, the newest first.
func (h *History) Commits() (out []Commit) {
	h.read(func() { out = slices.Clone(h.commits) })
	slices.Reverse(out)
	return out
}

// Query selects Events. The zero Query selects all of them.
type Query struct {
	After     uint64 `json:"after,omitempty"` // ID of an Event
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service,omitempty"` // "namespace/name"
	Last      int    `json:"last,omitempty"`    // how many; 0 for all
}

func (q *Query) matches(e *Event, namespace string) bool {
	return e.ID > q.After && (q.Namespace == "" || namespace == q.Namespace) &&
		(q.Service == "" || e.Service == q.Service)
}

// Events returns the selected Events, the oldest first, and the ID of the last of all.
func (h *History) Events(q Query) (out []Event, last uint64) {
	h.read(func() {
		h.flushRefusals(h.Clock.Now())
		for _, r := range []*ring{&h.changes, &h.refusals} {
			for e := range r.all {
				if q.matches(e, namespaceOf(e.Service)) {
					out = append(out, *e)
				}
			}
		}
		last = h.last
	})
	slices.SortFunc(out, func(a, b Event) int { return int(a.ID) - int(b.ID) })
	if q.Last > 0 && len(out) > q.Last {
		out = out[len(out)-q.Last:]
	}
	return out, last
}

func namespaceOf(service string) string {
	for i := range service {
		if service[i] == '/' {
			return service[:i]
		}
	}
	return ""
}

func (h *History) add(to *ring, e Event) {
	h.last++
	e.ID = h.last
	to.add(e)
}

// ring keeps the last Events.
type ring struct {
	most   int
	events []Event
	next   int // where the oldest is, once it is full
}

func (r *ring) add(e Event) {
	if len(r.events) < r.most {
		r.events = append(r.events, e)
		return
	}
	r.events[r.next] = e
	r.next = (r.next + 1) % r.most
}

// all yields the Events in no particular order.
func (r *ring) all(yield func(*Event) bool) {
	for i := range r.events {
		if !yield(&r.events[i]) {
			return
		}
	}
}

// refusalPeriod is how often refusals of one Service for one cause are an Event.
const refusalPeriod = 10 * time.Second

// refusal is a Service that refuses packets for a cause. Service is zero for packets to
// no frontend.
type refusal struct {
	service model.Name
	cause   plan.Cause
}

// refused is what a Service refused.
type refused struct {
	since   time.Time // of the packets
	at      time.Time // of the last Event
	packets uint64    // not an Event yet
}

// Refused records packets that a Service refused since the counters were last read.
// Service is zero for packets to no frontend.
func (h *History) Refused(service model.Name, why plan.Cause, packets uint64, since time.Time) {
	h.read(func() {
		key := refusal{service, why}
		r := h.refusing[key]
		if r == nil {
			r = &refused{since: since}
			h.refusing[key] = r
		}
		if r.packets == 0 {
			r.since = since
		}
		r.packets += packets
		h.flushRefusal(key, r, h.Clock.Now())
	})
}

// flushRefusals makes Events of what was refused a while ago.
func (h *History) flushRefusals(now time.Time) {
	for key, r := range h.refusing {
		if h.flushRefusal(key, r, now); r.packets == 0 && now.Sub(r.at) >= refusalPeriod {
			delete(h.refusing, key)
		}
	}
}

func (h *History) flushRefusal(key refusal, r *refused, now time.Time) {
	if r.packets == 0 || now.Sub(r.at) < refusalPeriod {
		return
	}
	e := Event{At: now, Kind: Refused, Reason: key.cause.String(), Packets: r.packets, Detail: key.cause.Text()}
	if key.service != (model.Name{}) {
		e.Service = key.service.String()
	}
	if !r.since.IsZero() {
		e.Seconds = max(0, now.Sub(r.since).Seconds())
	}
	h.add(&h.refusals, e)
	r.packets, r.at = 0, now
}
