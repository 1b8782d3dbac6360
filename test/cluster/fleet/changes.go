package main

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sluice/internal/engine"
)

// changes are the changes that the cluster made. Each has an address of its own among the endpoints, by
// which it is recognized.
type changes struct {
	mu   sync.Mutex
	sent []time.Time // when each was requested
}

const firstChange = 11 // 11.0.0.0/8

// next returns a new change and its address.
func (c *changes) next() (n int, address netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = len(c.sent)
	c.sent = append(c.sent, time.Now())
	return n, changeAddress(n)
}

func changeAddress(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{firstChange, byte(n >> 16), byte(n >> 8), byte(n)})
}

func (c *changes) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sent)
}

func (c *changes) sentAt(n int) (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n >= len(c.sent) {
		return at, false
	}
	return c.sent[n], true
}

// change changes one endpoint of a Service, and returns the number of the change.
func (c *cluster) change(ctx context.Context, service int) (int, error) {
	n, address := c.changes.next()
	addresses := c.addressesOf(service)
	addresses[0] = address.String()
	return n, c.update(ctx, service, addresses)
}

// changeFor changes Services at the rate for a time, and returns how many changes that were.
func (c *cluster) changeFor(ctx context.Context, d time.Duration) (int, error) {
	ticker := time.NewTicker(time.Second / time.Duration(c.rate))
	defer ticker.Stop()
	end := time.After(d)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-end:
			return n, nil
		case <-ticker.C:
			if _, err := c.change(ctx, 1+n%(c.services-1)); err != nil { // not the watched one
				return n, err
			}
		}
	}
}

// arrivals are the changes that a node has.
type arrivals struct {
	changes *changes

	mu   sync.Mutex
	seen map[int]struct{}
	from int // the first change that is timed
	took []time.Duration
}

// Committed notes the changes in a commit.
func (a *arrivals) Committed(c *engine.Commit) {
	for _, f := range c.Change.Set {
		for _, e := range f.Route.Endpoints {
			if ip := e.Addr().As4(); ip[0] == firstChange {
				a.note(int(ip[1])<<16|int(ip[2])<<8|int(ip[3]), c.End)
			}
		}
	}
}

func (a *arrivals) note(n int, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.seen[n]; again {
		return
	}
	a.seen[n] = struct{}{}
	if sent, ok := a.changes.sentAt(n); ok && n >= a.from {
		a.took = append(a.took, at.Sub(sent))
	}
}

func (a *arrivals) has(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.seen[n]
	return ok
}

// time has the changes timed that come from now on.
func (a *arrivals) time() {
	from := a.changes.count()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.from, a.took = from, nil
}

// times returns how long the changes took.
func (a *arrivals) times() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.took)
}

// quantile returns a quantile of durations, which it sorts.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}
