//go:build linux

package userspace

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
)

const (
	// remembered is for how long it is known when an endpoint answered, or was tried, and failuresLast for how
	// long a failure is.
	remembered   = 10 * time.Second
	failuresLast = 5 * time.Second
	// maxFailures bounds how many pairs of endpoint and client are remembered.
	maxFailures = 1 << 12
)

// witness remembers how endpoints that are watched took the connections that the proxy opened for clients.
type witness struct {
	clock clock.PassiveClock

	mu       sync.Mutex // never held across I/O
	watched  map[dataplane.Target]*watched
	failures map[failing]*dataplane.Failure
}

// watched is an endpoint.
type watched struct {
	dataplane.Seen
	onTrial dataplane.OnTrial
	since   time.Time // that it is, or is not
}

// failing is what there is one Failure of.
type failing struct {
	at      dataplane.Target
	client  netip.Addr
	refused bool
}

func newWitness(c clock.PassiveClock) *witness {
	return &witness{clock: c, watched: map[dataplane.Target]*watched{}, failures: map[failing]*dataplane.Failure{}}
}

// tried takes over how an attempt to connect to an endpoint ended.
func (w *witness) tried(a dataplane.Attempt) {
	at := dataplane.Target{AddrPort: a.Endpoint, Protocol: a.Protocol}
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.watched[at]
	if seen == nil {
		return
	}
	if began := now.Add(-a.Took); seen.onTrial && seen.Tried.IsZero() && began.After(seen.since) {
		seen.Tried = began
	}
	if a.Outcome == dataplane.Accepted {
		seen.Answered = now
		return
	}
	who := failing{at, a.Client.Addr(), a.Outcome == dataplane.Refused}
	f := w.failures[who]
	if f == nil && len(w.failures) >= maxFailures {
		return
	}
	if f == nil {
		f = &dataplane.Failure{Target: at, Client: who.client, Refused: who.refused}
		w.failures[who] = f
	}
	f.Packets++
	f.At, f.Waited = now, a.Took
}

// Watch implements dataplane.Witness.
func (w *witness) Watch(_ context.Context, targets map[dataplane.Target]dataplane.OnTrial) error {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range w.watched {
		if _, keep := targets[at]; !keep {
			delete(w.watched, at)
		}
	}
	for at, onTrial := range targets {
		one := w.watched[at]
		if one == nil {
			one = &watched{}
			w.watched[at] = one
		}
		if one.onTrial != onTrial { // what was tried before does not count
			one.onTrial, one.since, one.Tried = onTrial, now, time.Time{}
		}
	}
	return nil
}

// Failures implements dataplane.Witness.
func (w *witness) Failures(context.Context) (all []dataplane.Failure, err error) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for who, f := range w.failures {
		if w.watched[who.at] == nil || now.Sub(f.At) > failuresLast {
			delete(w.failures, who)
			continue
		}
		all = append(all, *f)
	}
	return all, nil
}

// Seen implements dataplane.Witness.
func (w *witness) Seen(_ context.Context, targets []dataplane.Target) (map[dataplane.Target]dataplane.Seen, error) {
	now := w.clock.Now()
	lately := func(t time.Time) time.Time {
		if now.Sub(t) > remembered {
			return time.Time{}
		}
		return t
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[dataplane.Target]dataplane.Seen{}
	for _, at := range targets {
		if s := w.watched[at]; s != nil {
			out[at] = dataplane.Seen{Answered: lately(s.Answered), Tried: lately(s.Tried)}
		}
	}
	return out, nil
}
