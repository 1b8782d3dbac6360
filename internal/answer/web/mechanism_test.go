package web

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"sluice/internal/answer/status"
	"sluice/internal/dataplane/kernelspace"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// On a node with Windows nothing says that the kernel were programmed.
func TestWordsOnWindows(t *testing.T) {
	config := plan.Config{NodeName: "node1"}
	kernelspace.Mode.Adjust(&config)
	var report func() *status.Report
	w := newWorldOf(t, clock.RealClock{}, config, func(o *Options) { report = o.Status })
	w.Sync(app("default/web", "10.96.0.1", []string{"10.244.1.1"})...)
	w.Dataplane.Set(func(b *enginetest.Behaviour) {
		b.Refuse[netip.MustParseAddr("10.96.0.80")] = errors.New("no room left")
	})
	w.Change(app("default/mail", "10.96.0.80", []string{"10.244.1.2"})...)
	var text strings.Builder
	if err := status.Write(&text, report()); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"status": strings.Replace(text.String(), "mode, kernel ", "", 1)}
	for _, target := range []string{"/", "/problems", "/events", "/service?namespace=default&name=web", "/service?namespace=default&name=mail"} {
		all[target] = strings.Replace(w.get(target).Body.String(), "<dt>Kernel</dt>", "", 1)
	}
	for where, text := range all {
		if strings.Contains(strings.ToLower(strings.ReplaceAll(text, "kernelspace", "")), "kernel") || !strings.Contains(text, "HNS") {
			t.Errorf("%s:\n%s", where, text)
		}
	}
}

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
