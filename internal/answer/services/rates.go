package services

import (
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// Rates are what frontends got per second: packets that opened a connection, and that tried to in
// vain.
type Rates struct {
	Connections float64
	Refused     Refusals
}

// Refusals are packets that tried to open a connection and were refused, per second and by cause.
type Refusals [plan.NumFrontendRefusals]float64

// RatesBetween returns the rates between two readings of the counters of a frontend, and false if
// they were reset meanwhile.
func RatesBetween(before, now dataplane.Traffic, took time.Duration) (r Rates, ok bool) {
	gained, ok := now.Since(before)
	seconds := took.Seconds()
	r.Connections = float64(gained.Connections) / seconds
	for i, n := range gained.Refused {
		r.Refused[i] = float64(n) / seconds
	}
	return r, ok
}

// Add adds the rates of another frontend.
func (r *Rates) Add(o Rates) {
	r.Connections += o.Connections
	for i := range o.Refused {
		r.Refused[i] += o.Refused[i]
	}
}

// Total is that of all causes.
func (r Refusals) Total() (sum float64) {
	for _, n := range r {
		sum += n
	}
	return sum
}

// Cause is the most frequent one.
func (r Refusals) Cause() plan.Cause {
	most := plan.NoEndpoints
	for i := range r {
		if r[i] > r[most] {
			most = plan.Cause(i)
		}
	}
	return most
}
