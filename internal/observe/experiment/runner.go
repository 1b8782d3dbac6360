package experiment

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"sluice/internal/dataplane"
)

// Runner makes attempts. The zero one is ready.
type Runner struct {
	mu        sync.Mutex
	listening map[*hearing]struct{}
}

// Tried takes over how the proxy itself connected a client to an endpoint. It does not block.
func (u *Runner) Tried(a dataplane.Attempt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for h := range u.listening {
		h.add(tried{a, time.Now()})
	}
}

// listen begins to remember what the proxy tries.
func (u *Runner) listen() *hearing {
	h := &hearing{all: map[netip.AddrPort]tried{}}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.listening == nil {
		u.listening = map[*hearing]struct{}{}
	}
	u.listening[h] = struct{}{}
	return h
}

func (u *Runner) forget(h *hearing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.listening, h)
}

// maxHeard is how many clients are remembered during an attempt.
const maxHeard = 10_000

// hearing is what the proxy tried during an attempt: the last endpoint of each client. Whose
// connection the attempt is, is known only after it began.
type hearing struct {
	mu  sync.Mutex
	who []netip.AddrPort // the client of the attempt, by all names
	all map[netip.AddrPort]tried
}

// tried is what the proxy tried, and when that ended.
type tried struct {
	dataplane.Attempt
	at time.Time
}

func (h *hearing) add(t tried) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.all[t.Client]; known || len(h.all) < maxHeard || slices.Contains(h.who, t.Client) {
		h.all[t.Client] = t
	}
}

func (h *hearing) expect(client netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if client = netip.AddrPortFrom(client.Addr().Unmap(), client.Port()); !slices.Contains(h.who, client) {
		h.who = append(h.who, client)
	}
}

// last returns the endpoint that was tried last for the client.
func (h *hearing) last() (t tried, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, who := range h.who {
		if t, found = h.all[who]; found {
			return t, true
		}
	}
	return t, false
}

// accepted reports whether an endpoint took the connection.
func (h *hearing) accepted() bool {
	last, found := h.last()
	return found && last.Outcome == dataplane.Accepted
}
