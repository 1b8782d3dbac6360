// Package cta names the kernel's attributes of connection tracking entries
// (linux/netfilter/nfnetlink_conntrack.h).
package cta

import "sluice/internal/kernel/nfnetlink"

// Of an entry.
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
	SeenReply = 1 << 1 // packets were seen in both directions
	Confirmed = 1 << 3 // the entry is in the table
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

// States of a TCP connection (linux/netfilter/nf_conntrack_tcp.h).
const (
	TCPSynSent     = 1
	TCPEstablished = 3
	TCPLastAck     = 6
	TCPTimeWait    = 7
)

// TCPState returns the state in the attribute ProtoInfo of an entry, 0 for other protocols.
func TCPState(info []byte) uint8 {
	for typ, v := range nfnetlink.Attrs(info) {
		if typ != ProtoInfoTCP {
			continue
		}
		for typ, v := range nfnetlink.Attrs(v) {
			if typ == ProtoInfoTCPState && len(v) == 1 {
				return v[0]
			}
		}
	}
	return 0
}
