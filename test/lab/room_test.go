//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// While the kernel drops packets because its connection tracking table is full, no Service is said
// to work; when there is room again, all are.
func TestFullConnectionTrackingTable(t *testing.T) {
	if !testkit.InGuest() {
		t.Skip("the limit is that of the whole machine")
	}
	const limit, most = "/proc/sys/net/netfilter/nf_conntrack_max", 64
	before, err := os.ReadFile(limit)
	if err != nil {
		t.Fatal(err)
	}
	set := func(value string) {
		t.Helper()
		if err := os.WriteFile(limit, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(string(before)) })
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, "--conntrack-max-per-core=0"}})
	settle(t, p, dir, 0)
	a.ready()
	judged(t, a, l, goodAddress)

	// Connections that are held fill the table: the kernel does not forget those.
	service := netip.MustParseAddrPort("10.96.0.1:80")
	for range most {
		s, err := l.Open(lab.Flow{From: "pod3", Protocol: lab.TCP, To: service})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
	}
	set(fmt.Sprint(most / 2))
	testkit.Eventually(t, func() error {
		if seen := l.Connect(t.Context(), lab.Flow{From: "pod2", Protocol: lab.TCP, To: service}); seen.Kind != lab.Dropped {
			return fmt.Errorf("a new connection is %v", seen)
		}
		services, _, _ := a.ask("services", "-n", "default")
		status, _, _ := a.ask("status")
		explained, _, code := a.ask("explain", "default/good:80")
		switch {
		case !strings.Contains(services, "WORKS FOR SOME") && !strings.Contains(services, "works for some"):
			return fmt.Errorf("services:\n%s", services)
		case !strings.Contains(status, "nf_conntrack_max") || !strings.Contains(status, "default/good works for some"):
			return fmt.Errorf("status:\n%s", status)
		case code != 1 || !strings.Contains(explained, "its table of them is full"):
			return fmt.Errorf("explain ends with %d:\n%s", code, explained)
		}
		return nil
	})
	set(string(before))
	judged(t, a, l, goodAddress)
}
