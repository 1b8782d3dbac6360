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
	// shortest is the least time that a rate is measured over, and work the
	// share of it that reading may take: who looks at a big cluster must not
	// keep the kernel busy.
	shortest = 2 * time.Second
	work     = 20
	// forgetAfter is how long counters are kept when nobody looks.
	forgetAfter = time.Minute
	readTimeout = 5 * time.Second
)

// meter turns the counters of the kernel into rates. It reads when somebody
// looks, and not otherwise.
type meter struct {
	traffic dataplane.Count // nil if nothing is counted
	log     logr.Logger
	clock   clock.WithDelayedExecution

	reading sync.Mutex // held by the one who reads

	mu     sync.Mutex // held for moments only
	now    reading
	next   time.Time // before which nobody need read again
	forget clock.Timer
}

// reading is what the counters said at one moment. It does not change.
type reading struct {
	at     time.Time
	counts map[plan.Key]int64 // nil before the first, or if nothing is counted
	// rates are connections per second, of those that have any; nil before the
	// second reading.
	rates map[plan.Key]float64
}

func newMeter(traffic dataplane.Count, log logr.Logger, c clock.WithDelayedExecution) *meter {
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
	counts := map[plan.Key]int64{}
	_, err := m.traffic(ctx, func(k plan.Key, t dataplane.Traffic) { counts[k] = t.Connections })
	end := m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = end.Add(max(shortest, work*end.Sub(start)))
	if err != nil {
		m.log.V(2).Info("Cannot read the connection counters for the page", "err", err.Error())
		return
	}
	m.now = m.now.until(reading{at: end, counts: counts})
	if m.forget == nil {
		m.forget = m.clock.AfterFunc(forgetAfter, m.reset)
	} else {
		m.forget.Reset(forgetAfter)
	}
}

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = reading{}
}

// until returns a later reading with the rates since the earlier one. A counter
// that went back has started again.
func (r reading) until(later reading) reading {
	took := later.at.Sub(r.at).Seconds()
	if r.counts == nil || took <= 0 {
		return later
	}
	later.rates = map[plan.Key]float64{}
	for key, n := range later.counts {
		gained := n - r.counts[key]
		if gained < 0 {
			gained = n
		}
		if gained > 0 {
			later.rates[key] = float64(gained) / took
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
