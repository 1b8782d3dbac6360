package conntrack

import (
	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// flow is an entry of the table.
type flow struct{ ctnetlink.Entry }

// key returns the key of a frontend on the address that the client sends to.
func (f *flow) key() plan.Key {
	return plan.Key{Addr: f.To.Addr(), Port: f.To.Port(), Protocol: f.Protocol}
}

// nodePortKey returns the key of the node port that the client may be sending
// to.
func (f *flow) nodePortKey() plan.Key {
	return plan.NodePortKey(model.FamilyOf(f.To.Addr()), f.To.Port(), f.Protocol)
}
