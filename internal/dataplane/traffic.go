package dataplane

import (
	"context"

	"sluice/internal/plan"
)

// TrafficReader is a Dataplane that counts packets that open connections.
type TrafficReader interface {
	// Traffic calls each with the traffic of frontends, and returns that
	// addressed to no frontend. It may omit frontends that are changing; they
	// are included the next time. It may be called concurrently and never
	// delays changes for long.
	Traffic(ctx context.Context, each func(plan.Key, Traffic)) (UnmatchedTraffic, error)
}

// Traffic counts the packets that tried to open a connection to a frontend, as
// far as the kernel counts them. Only differences are meaningful: the counters
// start at an unknown value, and parts of them may be negative.
type Traffic struct {
	// Attempts counts all of them. It decreases only when the kernel's counters
	// are reset.
	Attempts    uint64
	Connections int64
	Refused     [plan.NumFrontendRefusals]int64 // by cause
}

// UnmatchedTraffic counts packets that tried to open a connection to an address
// of the Services, but to no frontend, since the kernel's counters were reset.
type UnmatchedTraffic struct {
	NoSuchPort, UnusedAddress uint64
}

// Plus returns the sum.
func (t Traffic) Plus(o Traffic) Traffic {
	t.Attempts += o.Attempts
	t.Connections += o.Connections
	for i := range t.Refused {
		t.Refused[i] += o.Refused[i]
	}
	return t
}

// Minus returns the difference.
func (t Traffic) Minus(o Traffic) Traffic {
	t.Attempts -= o.Attempts
	t.Connections -= o.Connections
	for i := range t.Refused {
		t.Refused[i] -= o.Refused[i]
	}
	return t
}

// Since returns what was counted since an earlier reading, and false if the counters were reset
// after it: the attempts went back. If only a part of them did, it was read while packets came in,
// and is right at the next reading: it counts as unchanged until then.
func (t Traffic) Since(before Traffic) (gained Traffic, ok bool) {
	if t.Attempts < before.Attempts {
		return Traffic{}, false
	}
	gained = t.Minus(before)
	gained.Connections = max(0, gained.Connections)
	for i := range gained.Refused {
		gained.Refused[i] = max(0, gained.Refused[i])
	}
	return gained, true
}

// TrafficFunc is the type of TrafficReader.Traffic.
type TrafficFunc func(ctx context.Context, each func(plan.Key, Traffic)) (UnmatchedTraffic, error)

// TrafficOf returns how a Dataplane counts traffic, nil if it does not.
func TrafficOf(d Dataplane) TrafficFunc {
	if a, ok := d.(TrafficReader); ok {
		return a.Traffic
	}
	return nil
}
