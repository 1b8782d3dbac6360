package conntrack

import (
	"encoding/binary"
	"slices"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
)

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

// includes reports whether an entry is of the kind.
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
