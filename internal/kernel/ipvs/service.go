//go:build linux

package ipvs

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Key identifies a virtual service.
type Key struct {
	// Addr is the address. If Mark is set, it is the unspecified address of the family.
	Addr     netip.Addr
	Port     uint16
	Protocol uint8 // IPPROTO_TCP, IPPROTO_UDP or IPPROTO_SCTP
	// Mark selects packets by their mark instead of their destination.
	Mark uint32
}

// Compare orders keys by address, port, protocol and mark.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol),
		cmp.Compare(k.Mark, o.Mark))
}

func (k Key) String() string {
	if k.Mark != 0 {
		return fmt.Sprintf("mark %d", k.Mark)
	}
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + protocolNames[k.Protocol]
}

var protocolNames = map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP", unix.IPPROTO_SCTP: "SCTP"}

// Flags are the flags of a virtual service.
type Flags uint32

// The flags (linux/ip_vs.h).
const (
	// Persistent makes a client keep its destination for the timeout of the service.
	Persistent Flags = 1 << 0
	hashed     Flags = 1 << 1 // set by the kernel
	// Fallback makes the schedulers sh and mh choose again if the destination that a
	// client hashes to has weight 0. Without it such clients are refused.
	Fallback Flags = 1 << 3
	// HashPort makes these schedulers hash the client's port too.
	HashPort Flags = 1 << 4
)

// Service is a virtual service.
type Service struct {
	Key
	Scheduler string
	Flags     Flags
	// Timeout is for how many seconds a client keeps its destination if the service is
	// persistent. It has no effect otherwise, but the kernel keeps it.
	Timeout uint32
}

// Destination is a server of a virtual service.
type Destination struct {
	netip.AddrPort
	// Weight is its share of new connections. With 0 it gets none, and keeps those that
	// it has.
	Weight uint32
	// Active and Inactive count its connections. They are only read.
	Active, Inactive uint32
}

// Connections is the number of connections.
func (d *Destination) Connections() int { return int(d.Active) + int(d.Inactive) }

// Text writes virtual services as ipvsadm(8) --save --numeric does, sorted.
func Text(services map[Service][]Destination) string {
	var b strings.Builder
	for _, s := range slices.SortedFunc(maps.Keys(services), func(a, b Service) int { return a.Key.Compare(b.Key) }) {
		fmt.Fprintf(&b, "-A %s -s %s%s\n", s.Key.option(), s.Scheduler, s.options())
		for _, d := range services[s] {
			fmt.Fprintf(&b, "-a %s -r %s -m -w %d\n", s.Key.option(), d.AddrPort, d.Weight)
		}
	}
	return b.String()
}

func (k Key) option() string {
	if k.Mark != 0 {
		return fmt.Sprintf("-f %d", k.Mark)
	}
	letters := map[uint8]string{unix.IPPROTO_TCP: "-t", unix.IPPROTO_UDP: "-u", unix.IPPROTO_SCTP: "--sctp-service"}
	return letters[k.Protocol] + " " + netip.AddrPortFrom(k.Addr, k.Port).String()
}

func (s *Service) options() string {
	text := ""
	if s.Flags&Persistent != 0 {
		text += fmt.Sprintf(" -p %d", s.Timeout)
	}
	var names []string
	for _, f := range []struct {
		flag Flags
		name string
	}{{Fallback, "fallback"}, {HashPort, "port"}} {
		if s.Flags&f.flag != 0 {
			names = append(names, s.Scheduler+"-"+f.name)
		}
	}
	if names != nil {
		text += " -b " + strings.Join(names, ",")
	}
	return text
}
