package dataplane

import (
	"context"

	"sluice/internal/plan"
)

// TrafficReader is a Dataplane that tells what became of the packets that asked for
// a connection.
type TrafficReader interface {
	// Traffic calls each with the traffic of frontends, and returns that of
	// none. It may leave out frontends that change at the moment; they come the
	// next time. It may be called by others and never delays changes for long.
	Traffic(ctx context.Context, each func(plan.Key, Traffic)) (UnmatchedTraffic, error)
}

// Traffic is what became of the packets that asked a frontend for a connection,
// as far as the kernel counts. Only differences mean something: where the counts
// begin is not known, and parts of them may be below zero.
type Traffic struct {
	// Attempts are all of them. It goes back only when the kernel counts anew.
	Attempts    uint64
	Connections int64
	Refused     [plan.NumFrontendRefusals]int64 // by cause
}

// UnmatchedTraffic are packets that asked for a connection with an address of the Services
// that is no frontend, since the kernel began to count them.
type UnmatchedTraffic struct {
	UnknownPort, UnallocatedAddress uint64
}

// Plus adds up.
func (t Traffic) Plus(o Traffic) Traffic {
	t.Attempts += o.Attempts
	t.Connections += o.Connections
	for i := range t.Refused {
		t.Refused[i] += o.Refused[i]
	}
	return t
}

// Minus is what t has more than o.
func (t Traffic) Minus(o Traffic) Traffic {
	t.Attempts -= o.Attempts
	t.Connections -= o.Connections
	for i := range t.Refused {
		t.Refused[i] -= o.Refused[i]
	}
	return t
}

// TrafficFunc is TrafficReader.Traffic of a dataplane.
type TrafficFunc func(ctx context.Context, each func(plan.Key, Traffic)) (UnmatchedTraffic, error)

// TrafficOf is how a Dataplane counts, nil if it does not.
func TrafficOf(d Dataplane) TrafficFunc {
	if a, ok := d.(TrafficReader); ok {
		return a.Traffic
	}
	return nil
}
