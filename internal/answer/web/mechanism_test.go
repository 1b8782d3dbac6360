package web

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"sluice/internal/dataplane/kernelspace"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// On a node with Windows the page of a Service says only what HNS is asked for.
func TestPageOnWindows(t *testing.T) {
	config := plan.Config{NodeName: "node1"}
	kernelspace.Mode.Adjust(&config)
	w := newWorldOf(t, clock.RealClock{}, config)
	w.Attempt(app("default/web", "10.96.0.1", []string{"10.244.1.1", "10.244.2.1"}, func(s *model.Service) {
		s.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
		s.Affinity, s.Filtered, s.SourceRanges = 600, true, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	})...)
	page := w.get("/service?namespace=default&name=web").Body.String()
	for _, want := range []string{"as long as HNS decides", "everybody: HNS has no source ranges", "on other nodes"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
	for _, alien := range []string{"asquerade", "from this node&#39;s address", "from the client&#39;s address", "detectLocal", "sysctl", "1 source range"} {
		if strings.Contains(page, alien) {
			t.Errorf("the page says %q:\n%s", alien, page)
		}
	}
	usual := newWorld(t)
	usual.Attempt(app("default/web", "10.96.0.1", []string{"10.244.1.1"})...)
	page = usual.get("/service?namespace=default&name=web").Body.String()
	if !strings.Contains(page, "Masqueraded") || !strings.Contains(page, "from the client&#39;s address") {
		t.Errorf("on other nodes the page does not say who is masqueraded:\n%s", page)
	}
}
