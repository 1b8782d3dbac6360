package dataplane

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"sluice/internal/model"
)

// Witness is a Dataplane that notices how the endpoints of watched routes answer new connections.
// What it tells is bounded, and does not grow with the number of connections.
type Witness interface {
	// Watch replaces the endpoints that are watched, of which some are on trial, and mends what another
	// program has changed of what it needs. With ErrTooManyWatched it has done so for as many as it can.
	Watch(context.Context, map[Target]OnTrial) error
	// Failures returns whose connections were not answered in the last few seconds.
	Failures(context.Context) ([]Failure, error)
	// Seen returns what was seen of endpoints in the last few seconds.
	Seen(context.Context, []Target) (map[Target]Seen, error)
}

// ErrTooManyWatched is returned if more endpoints are to be watched than can be.
var ErrTooManyWatched = errors.New("of some endpoints it is not seen whether they answer")

// OnTrial says that it matters whether a client tried to connect to an endpoint, and not only how that ended.
type OnTrial = bool

// Seen is when something was seen of an endpoint; a time is zero if it was not.
type Seen struct {
	Answered time.Time // when it last accepted a connection
	Tried    time.Time // when a client began to connect to it, which is on trial, as far as remembered the first
}

// Target is an endpoint as the destination of connections.
type Target struct {
	netip.AddrPort
	Protocol model.Protocol
}

// Compare returns -1, 0 or 1, by address, port and protocol.
func (t Target) Compare(o Target) int {
	return cmp.Or(t.AddrPort.Compare(o.AddrPort), cmp.Compare(t.Protocol, o.Protocol))
}

// Failure is what happened to connections of a client that were not answered.
type Failure struct {
	Target
	Client netip.Addr
	// Refused says that resets, or errors, came back at once. Otherwise the client repeated first packets.
	Refused bool
	// Packets is how many resets came back or packets were repeated since there is such a Failure, and
	// At when the last one was. Its connection began so long before.
	Packets uint64
	At      time.Time
	Waited  time.Duration
}
