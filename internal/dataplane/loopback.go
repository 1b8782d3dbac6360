package dataplane

import (
	"context"

	"sluice/internal/model"
)

// LoopbackCounter is a Dataplane that counts packets of programs on the node to ports at loopback
// addresses.
type LoopbackCounter interface {
	// CountLoopback replaces the ports whose packets are counted, and says whether they are rejected.
	// Without ports nothing is left in the kernel.
	CountLoopback(ctx context.Context, ports map[LoopbackPort]struct{}, reject bool) error
	// LoopbackPackets returns how many packets there were since something was counted first. It never
	// becomes less, whatever is counted.
	LoopbackPackets(context.Context) (map[LoopbackPackets]uint64, error)
}

// LoopbackPort is a port of all loopback addresses of a family.
type LoopbackPort struct {
	LoopbackPackets
	Port uint16
}

// LoopbackPackets are those of a family and protocol.
type LoopbackPackets struct {
	Family   model.Family
	Protocol model.Protocol
}
