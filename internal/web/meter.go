package web

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

const (
	// A rate is measured over work times as long as it takes to read the counters,
	// for a page that is left open must cost next to nothing; but over no less than
	// shortest and no more than longest.
	shortest = 2 * time.Second
	longest  = 30 * time.Second
	work     = 500

	readTimeout = 5 * time.Second
)

// meter turns the counters of the kernel into rates. It reads when somebody
// looks, and not otherwise.
type meter struct {
	traffic dataplane.TrafficFunc // nil if nothing is counted
	log     logr.Logger
	clock   clock.PassiveClock

	reading sync.Mutex // held by the one who reads

	mu   sync.Mutex // held for moments only
	now  reading
	next time.Time // before which nobody need read again
}

// reading is what the counters said at one moment. It does not change.
type reading struct {
	at     time.Time
	counts map[plan.Key]int64 // nil before the first, or if nothing is counted
	// rates are connections per second, of those that have any; nil before the
	// second reading.
	rates map[plan.Key]float64
}

func newMeter(traffic dataplane.TrafficFunc, log logr.Logger, c clock.PassiveClock) *meter {
	return &meter{traffic: traffic, log: log, clock: c}
}

// read returns what the counters say now, or said a moment ago. While one reads,
// others do not wait for it.
func (m *meter) read(ctx context.Context) reading {
	if m.traffic != nil && m.reading.TryLock() {
		defer m.reading.Unlock()
		if now := m.clock.Now(); !now.Before(m.due()) {
			m.advance(ctx, now)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *meter) due() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

func (m *meter) advance(ctx context.Context, start time.Time) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	counts := make(map[plan.Key]int64, m.size())
	_, err := m.traffic(ctx, func(k plan.Key, t dataplane.Traffic) { counts[k] = t.Connections })
	end := m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = end.Add(min(longest, max(shortest, work*end.Sub(start))))
	if err != nil {
		m.log.V(2).Info("Cannot read the connection counters for the page", "err", err.Error())
		return
	}
	m.now = m.now.until(reading{at: end, counts: counts})
	if m.now.rates == nil { // somebody waits for the first ones
		m.next = end.Add(shortest)
	}
}

// size is how many counters there were.
func (m *meter) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.now.counts)
}

func (m *meter) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = reading{}
}

// until returns a later reading with the rates since the earlier one. What is
// only in one of them has none: it may be new, or was left out while it changed,
// and its count is of more than the time between. Nor has what went back, which
// started again.
func (r reading) until(later reading) reading {
	took := later.at.Sub(r.at).Seconds()
	if r.counts == nil || took <= 0 {
		return later
	}
	later.rates = map[plan.Key]float64{}
	for key, n := range later.counts {
		if before, known := r.counts[key]; known && n > before {
			later.rates[key] = float64(n-before) / took
		}
	}
	return later
}

// counted tells whether connections are counted at all.
func (r reading) counted() bool { return r.counts != nil }

// rate is that of some frontends together; false if it is not known yet.
func (r reading) rate(of []*plan.Frontend) (perSecond float64, known bool) {
	for _, f := range of {
		perSecond += r.rates[f.Key]
	}
	return perSecond, r.rates != nil
}

// total is the rate of everything.
func (r reading) total() (perSecond float64, known bool) {
	for _, rate := range r.rates {
		perSecond += rate
	}
	return perSecond, r.rates != nil
}
