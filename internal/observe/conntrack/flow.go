//go:build linux

package conntrack

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// flow is an entry of the table.
type flow struct{ ctnetlink.Entry }

// unanswered reports whether nothing came back yet for the first packet of a TCP connection.
func (f *flow) unanswered() bool {
	return f.Protocol == model.TCP && f.State == ctnetlink.TCPSynSent && !f.Replied
}

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

// kind is a kind of entries that are examined.
type kind uint8

const (
	anyKind kind = iota
	allUDP
	allTCP
	unansweredTCP // those of TCP whose first packet was not answered
)

func (k kind) protocol() model.Protocol {
	if k == allUDP {
		return model.UDP
	}
	return model.TCP
}

func (k kind) includes(f *flow) bool {
	return k == anyKind || f.Protocol == k.protocol() && (k != unansweredTCP || f.unanswered())
}

// filter requests the entries of the kind. Kernels before 5.8, and those before 5.19 for
// unansweredTCP, send more.
func (k kind) filter() []byte {
	protocol := nfnetlink.AppendAttr(nil, ctnetlink.ProtoNum, []byte{byte(k.protocol())})
	tuple := nfnetlink.AppendAttr(nil, nfnetlink.Nested|ctnetlink.TupleProto, protocol)
	b := nfnetlink.AppendAttr(nil, nfnetlink.Nested|ctnetlink.TupleOrig, tuple)
	flags := nfnetlink.AppendAttr(nil, ctnetlink.FilterOrigFlags, binary.NativeEndian.AppendUint32(nil, ctnetlink.FilterProtocol))
	b = nfnetlink.AppendAttr(b, nfnetlink.Nested|ctnetlink.Filter, flags)
	if k == unansweredTCP {
		b = append(b, Selection{Unreplied: true}.filter()...)
	}
	return b
}

// kinds are several of them.
type kinds []kind

func (k kinds) include(one kind) bool { return slices.Contains(k, one) }

// with adds one, and does not modify k.
func (k kinds) with(one kind) kinds {
	if k.include(one) {
		return k
	}
	return append(slices.Clip(k), one)
}

func (k kinds) without(one kind) kinds {
	return slices.DeleteFunc(slices.Clone(k), func(k kind) bool { return k == one })
}

// tracked reports whether entries of a protocol are examined at all.
func tracked(p model.Protocol) bool { return p == model.UDP || p == model.TCP }
