// Package inet has the families and transport protocols of the Internet, for those who talk about
// packets and know nothing of Services.
package inet

import (
	"fmt"
	"net/netip"
)

// Protocol is a transport protocol, by its IANA number.
type Protocol uint8

// The protocols a Service can have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// Family is an IP family.
type Family uint8

// The IP families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both families, in the order in which they are processed.
var Families = [...]Family{IPv4, IPv6}

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "no family"
}

// FamilyOf returns the family of a valid address. IPv4-mapped IPv6 addresses
// must not get here; sources unmap them.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}
