package dataplanetest

import (
	"net/netip"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// OK ends the test unless everything was programmed.
func OK(t testing.TB, r dataplane.Result) dataplane.Result {
	t.Helper()
	if r.Err != nil || len(r.Failed) > 0 {
		t.Fatalf("not programmed: %v %v", r.Err, r.Failed)
	}
	return r
}

// Settings are those of a node with pods and addresses of both families.
func Settings() plan.Settings {
	return plan.Settings{
		IPv4:           plan.Detector{Sources: testkit.Prefixes("10.244.0.0/16")},
		IPv6:           plan.Detector{Sources: testkit.Prefixes("fd00:10:244::/56")},
		NodePortIPs:    testkit.Addrs("192.0.2.10", "2001:db8::10"),
		MasqueradeMark: 1 << 14,
	}
}

// Endpoints reads addresses with ports.
func Endpoints(texts ...string) []plan.Endpoint {
	var out []plan.Endpoint
	for _, text := range texts {
		out = append(out, plan.Endpoint{AddrPort: netip.MustParseAddrPort(text)})
	}
	return out
}

// Key reads that of a frontend.
func Key(text string, p model.Protocol) plan.Key {
	at := netip.MustParseAddrPort(text)
	return plan.Key{Addr: at.Addr(), Port: at.Port(), Protocol: p}
}

// Destination reads that of a frontend, which for a node port is reached by one of the
// node's addresses.
func Destination(text string, p model.Protocol, destination string) dataplane.Destination {
	at := dataplane.Destination{Key: Key(text, p)}
	at.IP = at.Addr
	if destination != "" {
		at.IP = netip.MustParseAddr(destination)
	}
	return at
}
