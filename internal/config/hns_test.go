package config

import (
	"net/netip"
	"testing"

	"sluice/internal/dataplane"
)

// windowsMode is a mode as Windows has it.
var windowsMode = dataplane.Mode{Name: "w", Configuration: dataplane.Configuration{
	Section: "iptables", MasqueradeSection: "iptables", AlsoSection: "winkernel", Without: []string{"detectLocalMode", "nodePortAddresses"},
}}

func TestWindowsSettings(t *testing.T) {
	c := New()
	c.Winkernel.NetworkName, c.Winkernel.EnableDSR, c.Winkernel.ForwardHealthCheckVip = "l2", true, true
	c.Winkernel.SourceVip = "10.244.1.250"
	var n notes
	s := &Settings{Serving: serving(c, &n)}
	want := dataplane.Windows{Network: "l2", DSR: true, SourceVIP: netip.MustParseAddr("10.244.1.250"), RootEndpoint: "cbr0"}
	if got := windows(c, windowsMode, s, &n); got != want || s.Plan.HealthPort != 10256 || len(n.errors) > 0 {
		t.Errorf("they mean %+v, health at %d, %v", got, s.Plan.HealthPort, n.errors)
	}
	if got := windows(c, dataplane.Mode{}, s, &n); got != (dataplane.Windows{}) {
		t.Errorf("another mode reads %+v", got)
	}
	c.Winkernel.SourceVip, c.Winkernel.RootHnsEndpointName = "word", "br9"
	if got := windows(c, windowsMode, s, &n); got.RootEndpoint != "br9" || len(n.errors) != 1 {
		t.Errorf("an impossible source address means %+v, %v", got, n.errors)
	}
}

// A field without effect in a mode is noted, and one of the mode's is not.
func TestFieldsOfAMode(t *testing.T) {
	for path, want := range map[string]string{
		"winkernel.networkName": "", "nodePortAddresses": "mode w cannot do it", "bindAddress": "", "nftables.syncPeriod": "it is for proxy mode nftables, and the mode is w",
	} {
		for _, s := range settings {
			if got := s.idle(windowsMode); s.path == path && got != want {
				t.Errorf("%s has no effect because %q, want %q", path, got, want)
			}
		}
	}
}
