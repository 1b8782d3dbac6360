//go:build linux

package lab_test

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// The second proxy of a node reports the first, waits, and takes over when that one
// has exited, without losing a connection.
func TestTwoProxiesOnOneNodeDoNotFight(t *testing.T) {
	t.Parallel()
	inEachMode(t, testTwoProxies)
}

func testTwoProxies(t *testing.T, mode string) {
	l := lab.Start(t)
	dir, other := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	write(t, other, "good.yaml", goodManifests, 0)
	start := func(manifests string) *lab.Proxy {
		return startProxy(t, l, mode, lab.ProxyOptions{Manifests: manifests})
	}
	first := start(dir)
	settle(t, first, dir, 0)
	service := netip.MustParseAddrPort("10.96.0.1:80")
	traffic, err := l.StartTraffic(t.Context(), []lab.Flow{{From: "pod3", Protocol: lab.TCP, To: service}}, lab.TrafficOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second := start(other)
	eventually(t, func() bool { return strings.Contains(second.Log().String(), "Another proxy programs this node") })
	if strings.Contains(second.Log().String(), `"Programmed"`) {
		t.Error("the second proxy programs the kernel as well")
	}
	end := first.Kill
	if scenario.Modes[mode].InProcess { // it hands its connections over
		end = first.Stop
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	settle(t, second, other, 0)
	answered(t, l, service)
	if count := traffic.Stop(); count.Lost() > 0 {
		t.Errorf("connections were lost: %v", count)
	}
}
