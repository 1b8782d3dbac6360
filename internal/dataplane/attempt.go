package dataplane

import (
	"net/netip"
	"time"

	"sluice/internal/model"
)

// Attempt is one of the proxy to connect a client to an endpoint, and how it ended.
type Attempt struct {
	Client   netip.AddrPort // as the proxy sees it
	Endpoint netip.AddrPort
	Protocol model.Protocol
	Outcome  Outcome
	Took     time.Duration
}

// Outcome is how an Attempt ended.
type Outcome uint8

// The outcomes.
const (
	Accepted   Outcome = iota // the endpoint is connected to
	Refused                   // the endpoint, or who is in its place, refused
	Unanswered                // nobody answered
)
