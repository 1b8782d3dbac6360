package oracle

import (
	"net/netip"

	"sluice/internal/model"
)

// Packet is the first packet of a connection, as the node meets it.
type Packet struct {
	Source      netip.Addr
	Interface   string // it arrived through; empty when the node itself sends
	Destination netip.Addr
	Port        uint16
	Protocol    model.Protocol
}

// Action is what happens to a packet.
type Action uint8

// The actions.
const (
	Pass    Action = iota // not for a Service: left alone
	Forward               // to one of the endpoints
	Reject                // the client gets an error
	Drop                  // the client gets no answer
)

func (a Action) String() string {
	return [...]string{"pass", "forward", "reject", "drop"}[a]
}

// Verdict is what must happen to a packet.
type Verdict struct {
	Action  Action
	Service model.Name // whose frontend or ClusterIP was met, if any

	// Endpoints are all that may be chosen under Forward, sorted.
	Endpoints []netip.AddrPort
	// MasqueradedTo says for each of Endpoints whether it sees the node's
	// address instead of the client's.
	MasqueradedTo map[netip.AddrPort]bool
	// Affinity is the session affinity timeout in seconds, 0 for none.
	Affinity uint32

	Why string // for humans
}
