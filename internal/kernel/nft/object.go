//go:build linux

package nft

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"
)

// Family is the address family of a table.
type Family uint8

// The families.
const (
	IP   Family = unix.NFPROTO_IPV4
	IP6  Family = unix.NFPROTO_IPV6
	INet Family = unix.NFPROTO_INET // both; only of tables that others made
	// NetDev is of packets as they come in from an interface. Keys of its sets say which family they are of.
	NetDev Family = unix.NFPROTO_NETDEV
)

// AddrLen is the length of the family's addresses.
func (f Family) AddrLen() int { return int(f.pick(4, 16)) }

// pick returns the number for IPv6, or that for IPv4.
func (f Family) pick(ip4, ip6 uint32) uint32 {
	if f == IP6 {
		return ip6
	}
	return ip4
}

func (f Family) String() string {
	switch f {
	case IP6:
		return "ip6"
	case INet:
		return "inet"
	case NetDev:
		return "netdev"
	}
	return "ip"
}

// Table is a table by family and name.
type Table struct {
	Family  Family
	Name    string
	Comment string
	// Dormant says that its hooks ignore packets; only in what was read.
	Dormant bool
}

// Chain is a chain of a table. It is a base chain if Type is set.
type Chain struct {
	Name     string
	Type     string // "nat" or "filter"
	Hook     uint32 // unix.NF_INET_... or unix.NF_NETDEV_...
	Device   string // of base chains of family NetDev
	Priority int32
	// Drops says that the policy is drop; only in what was read.
	Drops bool
}

// Rule is a rule of a chain. Tag is stored with the rule and can be read, so that a
// later process recognises it; 0 is none.
type Rule struct {
	Chain string
	Exprs Exprs
	Tag   uint64
	// Protocols puts a match of TCP, UDP or SCTP before Exprs: nft(8) requires one in
	// the same rule for a port in dnat.
	Protocols bool
	Handle    uint64 // only in what was read
}

// Set is a named set, or a map if it has data.
type Set struct {
	Name string
	Key  Type
	// Data is the type of a map's values; the zero Type for a set.
	Data Type
	// Dynamic says that rules add elements with a timeout, Counter that elements have
	// counters.
	Dynamic, Counter bool
	// Size limits the number of elements; 0 is no limit.
	Size uint32
}

// Element is an element of a set. Key and Data are as in registers: each part is padded
// to four bytes. See Arena and Decoder.
type Element struct {
	Key  []byte
	Data []byte // value, in maps of data
	// Verdict is the value in maps of verdicts, nil elsewhere.
	Verdict *Verdict
	// Packets and Bytes are the counter: its start if the element is added.
	Packets, Bytes uint64
	// Expires is the time until the element expires; 0 is never.
	Expires time.Duration
}

// Same reports whether two elements have the same key and value.
func (e *Element) Same(o *Element) bool {
	if (e.Verdict == nil) != (o.Verdict == nil) || e.Verdict != nil && *e.Verdict != *o.Verdict {
		return false
	}
	return bytes.Equal(e.Key, o.Key) && bytes.Equal(e.Data, o.Data)
}

// Verdict says what happens to a packet.
type Verdict struct {
	Code  int32
	Chain string // of GotoCode and JumpCode
}

// Verdict codes.
const (
	DropCode   int32 = 0
	AcceptCode int32 = 1
	JumpCode   int32 = -3
	GotoCode   int32 = -4
	ReturnCode int32 = -5
)

// Goto returns the verdict that continues in another chain and does not return.
func Goto(chain string) *Verdict { return &Verdict{GotoCode, chain} }
