package inet

import (
	"net/netip"
	"testing"
)

func TestStrings(t *testing.T) {
	tests := []struct{ got, want string }{
		{TCP.String(), "TCP"}, {UDP.String(), "UDP"}, {SCTP.String(), "SCTP"}, {Protocol(1).String(), "protocol 1"},
		{IPv4.String(), "IPv4"}, {IPv6.String(), "IPv6"}, {Family(0).String(), "no family"},
		{FamilyOf(netip.MustParseAddr("192.0.2.1")).String(), "IPv4"},
		{FamilyOf(netip.MustParseAddr("2001:db8::1")).String(), "IPv6"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
