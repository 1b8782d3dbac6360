//go:build linux

package ctnetlink

import "golang.org/x/sys/unix"

// Messages.
const (
	New    = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW
	Get    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	Delete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE
)

// GroupDestroy is the multicast group that hears of entries that end (NFNLGRP_CONNTRACK_DESTROY).
const GroupDestroy = 3

// Attributes of an entry (linux/netfilter/nfnetlink_conntrack.h).
const (
	TupleOrig  = 1
	TupleReply = 2
	Status     = 3
	ProtoInfo  = 4
	NATSrc     = 6
	Timeout    = 7
	ID         = 12
	Zone       = 18
	Filter     = 25 // kernel 5.8
	StatusMask = 26 // kernel 5.19
)

// Bits of Status (linux/netfilter/nf_conntrack_common.h).
const (
	SeenReply = 1 << 1  // packets were seen in both directions
	Confirmed = 1 << 3  // the entry is in the table
	Offloaded = 1 << 14 // it is in a flow table
)

// Of a tuple.
const (
	TupleIP    = 1
	TupleProto = 2
	TupleZone  = 3
)

// Of the addresses in a tuple.
const (
	IPv4Src = 1
	IPv4Dst = 2
	IPv6Src = 3
	IPv6Dst = 4
)

// Of the protocol in a tuple.
const (
	ProtoNum     = 1
	ProtoSrcPort = 2
	ProtoDstPort = 3
)

// Of what a protocol knows about an entry.
const (
	ProtoInfoTCP      = 1
	ProtoInfoTCPState = 1
)

// Of a translation.
const (
	NATIPv4Min = 1
	NATIPv4Max = 2
	NATIPv6Min = 4
	NATIPv6Max = 5
)

// Of a filter: which parts of the tuples have to match.
const (
	FilterOrigFlags  = 1
	FilterReplyFlags = 2

	FilterSource   = 1 << 0
	FilterProtocol = 1 << 3
)

// States of a TCP connection (linux/netfilter/nf_conntrack_tcp.h).
const (
	TCPSynSent     = 1
	TCPEstablished = 3
	TCPLastAck     = 6
	TCPTimeWait    = 7
)
