package conntrack

import (
	"context"
	"net/netip"

	"sluice/internal/conntrack/cta"
	"sluice/internal/model"
)

// Connections counts the tracked connections to an endpoint.
type Connections struct {
	Open int
	// Unanswered are TCP connections of which the endpoint has not answered the first
	// packet.
	Unanswered int
}

// Count counts the connections of a network namespace to each endpoint that the kernel
// chose. netns is as in Options. It reads the whole table.
func Count(ctx context.Context, netns int) (map[netip.AddrPort]Connections, error) {
	out := map[netip.AddrPort]Connections{}
	_, err := table{netns: netns}.sweep(ctx, protocols{model.TCP, model.UDP, model.SCTP}, func(f *flow) bool {
		if !f.translated() || f.protocol == model.TCP && f.over() {
			return false
		}
		n := out[f.by]
		if f.protocol == model.TCP && f.state == cta.TCPSynSent {
			n.Unanswered++
		} else {
			n.Open++
		}
		out[f.by] = n
		return false
	})
	return out, err
}
