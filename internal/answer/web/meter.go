package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/answer/services"
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

	// averaged is the time over which rates are averaged if the counters are read
	// more often, so that the order of Services does not change all the time.
	averaged = 10 * time.Second

	readTimeout = 5 * time.Second
)

// meter turns the counters of the kernel into rates. It reads when it is asked.
type meter struct {
	traffic dataplane.TrafficFunc // nil if nothing is counted
	log     logr.Logger
	clock   clock.PassiveClock

	reading sync.Mutex // held while the counters are read

	mu   sync.Mutex // never held across I/O
	now  reading
	past []reading // earlier ones that rates are measured from, the oldest first
	next time.Time // when the counters are read again
}

// reading is an immutable reading of the counters.
type reading struct {
	at     time.Time
	counts map[plan.Key]dataplane.Traffic // nil before the first, or if nothing is counted
	// rates are per second, of frontends that have any; nil before the second
	// reading.
	rates map[plan.Key]services.Rates
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
	counts := make(map[plan.Key]dataplane.Traffic, m.size())
	_, err := m.traffic(ctx, func(k plan.Key, t dataplane.Traffic) { counts[k] = t })
	end := m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = end.Add(min(maxInterval, max(minInterval, costFactor*end.Sub(start))))
	if err != nil {
		m.log.V(2).Info("Cannot read the connection counters for the page", "err", err.Error())
		return
	}
	m.add(reading{at: end, counts: counts})
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

// add adds a reading with its rates, and forgets those that are no longer needed to
// measure any. m.mu is held.
func (m *meter) add(now reading) {
	if m.now.counts != nil {
		m.past = append(m.past, m.now)
	}
	for len(m.past) > 1 && now.at.Sub(m.past[1].at) >= averaged {
		m.past = slices.Delete(m.past, 0, 1)
	}
	if len(m.past) > 0 && now.at.After(m.now.at) {
		now.rates = map[plan.Key]services.Rates{}
		for key, is := range now.counts {
			if r := rateSince(m.past, key, is, now.at); r != (services.Rates{}) {
				now.rates[key] = r
			}
		}
	}
	m.now = now
}

// rateSince returns the rates of a frontend since the earliest reading that has it, and that
// was not before a reset. A frontend that is in none has no rate, because nobody knows since
// when it counts.
func rateSince(past []reading, key plan.Key, is dataplane.Traffic, now time.Time) services.Rates {
	for i := range past {
		if before, known := past[i].counts[key]; known {
			if r, ok := services.RatesBetween(before, is, now.Sub(past[i].at)); ok {
				return r
			}
		}
	}
	return services.Rates{}
}

func (r reading) counted() bool { return r.counts != nil }

func (r reading) known() bool { return r.rates != nil }

func (r reading) of(frontends []*plan.Frontend) (sum services.Rates) {
	for _, f := range frontends {
		sum.Add(r.rates[f.Key])
	}
	return sum
}

func (r reading) total() (sum services.Rates) {
	for _, rates := range r.rates {
		sum.Add(rates)
	}
	return sum
}
