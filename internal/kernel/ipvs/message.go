//go:build linux

package ipvs

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// The commands and attributes of the generic netlink family IPVS (linux/ip_vs.h).
const (
	familyName    = "IPVS"
	familyVersion = 1
	genHeaderLen  = unix.GENL_HDRLEN

	newService = 1
	setService = 2
	delService = 3
	getService = 4
	newDest    = 5
	setDest    = 6
	delDest    = 7
	getDest    = 8
	setConfig  = 12

	attrService    = 1
	attrDest       = 2
	attrTimeoutTCP = 4
	attrTimeoutFIN = 5
	attrTimeoutUDP = 6

	serviceFamily    = 1
	serviceProtocol  = 2
	serviceAddr      = 3
	servicePort      = 4
	serviceMark      = 5
	serviceScheduler = 6
	serviceFlags     = 7
	serviceTimeout   = 8
	serviceNetmask   = 9

	destAddr           = 1
	destPort           = 2
	destForward        = 3
	destWeight         = 4
	destUpperThreshold = 5
	destLowerThreshold = 6
	destActive         = 7
	destInactive       = 8
	destFamily         = 11
)

func attr16(b []byte, typ, v uint16) []byte {
	return nfnetlink.AppendAttr(b, typ, binary.NativeEndian.AppendUint16(nil, v))
}

func attr32(b []byte, typ uint16, v uint32) []byte {
	return nfnetlink.AppendAttr(b, typ, binary.NativeEndian.AppendUint32(nil, v))
}

func attrPort(b []byte, typ, port uint16) []byte {
	return nfnetlink.AppendAttr(b, typ, binary.BigEndian.AppendUint16(nil, port))
}

// attrAddr appends an address, which takes 16 bytes in either family.
func attrAddr(b []byte, typ uint16, ip netip.Addr) []byte {
	var full [16]byte
	copy(full[:], ip.AsSlice())
	return nfnetlink.AppendAttr(b, typ, full[:])
}

func familyOf(ip netip.Addr) uint16 {
	if ip.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// encodeKey returns the attributes that identify a service.
func encodeKey(k Key) []byte {
	b := attr16(nil, serviceFamily, familyOf(k.Addr))
	if k.Mark != 0 {
		return attr32(b, serviceMark, k.Mark)
	}
	b = attr16(b, serviceProtocol, uint16(k.Protocol))
	b = attrAddr(b, serviceAddr, k.Addr)
	return attrPort(b, servicePort, k.Port)
}

func encodeService(s *Service) []byte {
	b := nfnetlink.AppendAttr(encodeKey(s.Key), serviceScheduler, append([]byte(s.Scheduler), 0))
	flags := binary.NativeEndian.AppendUint32(nil, uint32(s.Flags))
	b = nfnetlink.AppendAttr(b, serviceFlags, binary.NativeEndian.AppendUint32(flags, ^uint32(0)))
	b = attr32(b, serviceTimeout, s.Timeout)
	// One client is one address: a mask in IPv4, a length in IPv6.
	netmask := ^uint32(0)
	if s.Addr.Is6() {
		netmask = 128
	}
	return attr32(b, serviceNetmask, netmask)
}

func encodeDestKey(at netip.AddrPort) []byte {
	b := attrAddr(nil, destAddr, at.Addr())
	b = attrPort(b, destPort, at.Port())
	return attr16(b, destFamily, familyOf(at.Addr()))
}

// encodeDest returns all attributes of a destination, which is reached by address
// translation.
func encodeDest(d Destination) []byte {
	b := attr32(encodeDestKey(d.AddrPort), destForward, 0)
	b = attr32(b, destWeight, d.Weight)
	b = attr32(b, destUpperThreshold, 0)
	return attr32(b, destLowerThreshold, 0)
}

// value reads attributes that may be shorter than expected.
type value []byte

func (v value) u16() uint16 {
	if len(v) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(v)
}

func (v value) u32() uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

func (v value) port() uint16 {
	if len(v) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(v)
}

func (v value) addr(family uint16) netip.Addr {
	switch {
	case family == unix.AF_INET && len(v) >= 4:
		return netip.AddrFrom4([4]byte(v[:4]))
	case family == unix.AF_INET6 && len(v) >= 16:
		return netip.AddrFrom16([16]byte(v[:16]))
	}
	return netip.Addr{}
}

func (v value) text() string { return unix.ByteSliceToString(v) }

// attributes are those of a service or a destination, by their type. Missing ones are
// empty.
type attributes [destFamily + 1]value

func decodeAttributes(b []byte) (a attributes) {
	for typ, v := range nfnetlink.Attrs(b) {
		if int(typ) < len(a) {
			a[typ] = v
		}
	}
	return a
}

func decodeService(b []byte) Service {
	a := decodeAttributes(b)
	family := a[serviceFamily].u16()
	s := Service{
		Key: Key{
			Addr: a[serviceAddr].addr(family), Port: a[servicePort].port(), Protocol: uint8(a[serviceProtocol].u16()),
			Mark: a[serviceMark].u32(),
		},
		Scheduler: a[serviceScheduler].text(), Flags: Flags(a[serviceFlags].u32()) &^ hashed, Timeout: a[serviceTimeout].u32(),
	}
	if s.Mark != 0 {
		s.Addr, s.Protocol = netip.IPv4Unspecified(), 0
		if family == unix.AF_INET6 {
			s.Addr = netip.IPv6Unspecified()
		}
	}
	return s
}

// decodeDest decodes a destination of a service of a family: old kernels do not say
// which one it is of.
func decodeDest(b []byte, family uint16) Destination {
	a := decodeAttributes(b)
	if a[destFamily] != nil {
		family = a[destFamily].u16()
	}
	return Destination{
		AddrPort: netip.AddrPortFrom(a[destAddr].addr(family), a[destPort].port()),
		Weight:   a[destWeight].u32(), Active: a[destActive].u32(), Inactive: a[destInactive].u32(),
	}
}
