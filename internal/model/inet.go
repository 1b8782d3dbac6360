package model

import (
	"net/netip"

	"sluice/internal/base/inet"
)

// Protocol and Family are those of inet, which kernel drivers share with the model.
type (
	Protocol = inet.Protocol
	Family   = inet.Family
)

// The protocols a Service can have, and the IP families.
const (
	TCP  = inet.TCP
	UDP  = inet.UDP
	SCTP = inet.SCTP

	IPv4 = inet.IPv4
	IPv6 = inet.IPv6
)

// Families lists both families, in the order in which they are processed.
var Families = inet.Families

// FamilyOf returns the family of a valid address.
func FamilyOf(a netip.Addr) Family { return inet.FamilyOf(a) }
