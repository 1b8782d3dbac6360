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
	// A rate is measured over costFactor times as long as it takes to read the
	// counters, because an open page must cost next to nothing, within minInterval and
	// maxInterval.
	minInterval = 2 * time.Second
	maxInterval = 30 * time.Second
	costFactor  = 500

	readTimeout = 5 * time.Second
)

// meter turns the counters of the kernel into rates. It reads on requests only.
type meter struct {
	traffic dataplane.TrafficFunc // nil if nothing is counted
	log     logr.Logger
	clock   clock.PassiveClock

	reading sync.Mutex // held while the counters are read

	mu   sync.Mutex // never held across I/O
	now  reading
	next time.Time // when the counters are read again
}

// reading is an immutable reading of the counters.
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

// read returns the last reading, after a new one if that is due. Concurrent requests
// do not wait for it.
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
	m.next = end.Add(min(maxInterval, max(minInterval, costFactor*end.Sub(start))))
	if err != nil {
		m.log.V(2).Info("Cannot read the connection counters for the page", "err", err.Error())
		return
	}
	m.now = m.now.until(reading{at: end, counts: counts})
	if m.now.rates == nil { // show the first ones soon
		m.next = end.Add(minInterval)
	}
}

// size is the number of counters of the last reading.
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

// until returns a later reading with the rates since the earlier one. A counter that is
// only in one of them has no rate: it may be new, or was omitted while it changed, so
// that it counts more than the time between. Nor has one that went back, which was
// reset.
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

// counted reports whether connections are counted at all.
func (r reading) counted() bool { return r.counts != nil }

// rate is the sum of some frontends; false if it is not known yet.
func (r reading) rate(of []*plan.Frontend) (perSecond float64, known bool) {
	for _, f := range of {
		perSecond += r.rates[f.Key]
	}
	return perSecond, r.rates != nil
}

// total is the rate of all frontends.
func (r reading) total() (perSecond float64, known bool) {
	for _, rate := range r.rates {
		perSecond += rate
	}
	return perSecond, r.rates != nil
}
