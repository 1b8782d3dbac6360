package conntrack

import (
	"net/netip"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// flow is an entry of the table.
type flow struct{ ctnetlink.Entry }

// unanswered reports whether nothing came back yet for the first packet of a TCP connection.
func (f *flow) unanswered() bool {
	return f.Protocol == model.TCP && f.State == ctnetlink.TCPSynSent && !f.Replied
}

// key returns the key of a frontend on the address that the client sends to.
func (f *flow) key() plan.Key {
	return plan.Key{Addr: f.To.Addr(), Port: f.To.Port(), Protocol: f.Protocol}
}

// endpoint returns where the flow leads as a frontend knows its endpoints.
func (f *flow) endpoint(of *plan.Frontend) netip.AddrPort { return of.TargetOf(f.To.Port(), f.By) }

// nodePortKey returns the key of the node port that the client may be sending
// to.
func (f *flow) nodePortKey() plan.Key {
	return plan.NodePortKey(model.FamilyOf(f.To.Addr()), f.To.Port(), f.Protocol)
}
