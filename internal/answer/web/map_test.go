package web

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/engine/enginetest"
	"sluice/internal/plan"
)

// squares returns the looks and titles of the squares of a map, and the names of its blocks.
func squares(body string) (out []string) {
	_, body, _ = strings.Cut(body, `id="map"`)
	for _, m := range regexp.MustCompile(`aria-label="Namespace ([^"]*)"|<a class="sq ([^"]*)" href="[^"]*" title="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		out = append(out, strings.TrimSpace(m[1]+" "+m[2]+" "+m[3]))
	}
	return out
}

func TestMapShowsVerdictsAndTraffic(t *testing.T) {
	w, clock := timed(t)
	w.Sync(concat(
		app("default/shop", "10.96.0.81", []string{"10.244.1.2"}), app("default/web", "10.96.0.80", []string{"10.244.1.1"}),
		app("idle/a", "10.96.0.90", []string{"10.244.1.1"}), app("idle/nothing", "10.96.0.99", nil),
	)...)
	count := func(n int64) {
		w.Dataplane.Set(func(b *enginetest.Behaviour) {
			b.Connections = map[plan.Key]int64{web: 20 * n, shop: 0, key("10.96.0.99"): 0}
			b.Refused = map[plan.Key]int64{key("10.96.0.99"): n}
		})
	}
	count(0)
	w.get("/map")
	clock.Step(10 * time.Second)
	count(10)
	body := w.get("/map").Body.String()
	want := []string{
		"idle", "refused t2 nothing: refused, no endpoints, 1.0 refused/s", "works t0 a: works",
		"default", "works t3 web: works, 20 connections/s", "works t0 shop: works",
	}
	if diff := cmp.Diff(want, squares(body)); diff != "" {
		t.Errorf("map (-want +got):\n%s", diff)
	}
	wants(t, body, `<i class="sq refused t2"></i> refused <b>1</b>`, `<i class="sq works t2"></i> works <b>3</b>`, `1 broken</b>`,
		`href="/service?name=nothing&amp;namespace=idle"`, `<a href="/?namespace=idle">idle</a>`)
}

func TestMapWithoutCounters(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Traffic = nil })
	wants(t, w.get("/map").Body.String(), "No Service is known")
	w.Sync(app("default/web", "10.96.0.80", []string{"10.244.1.1"})...)
	wants(t, w.get("/map").Body.String(), "connections are not counted in nftables mode", `<a class="sq works t0"`)
	wants(t, w.get("/").Body.String(), "They are not counted in nftables mode.")
}

func TestMapIsBounded(t *testing.T) {
	w := newWorld(t)
	w.Sync(append(many(maxSquares), app("another/broken", "10.97.0.1", nil)...)...)
	body := w.get("/map").Body.String()
	all := squares(body)
	if n := strings.Count(body, "<a class=\"sq "); n != maxSquares || len(all) < 2 || all[0] != "another" || all[1] != "refused t0 broken: refused, no endpoints" {
		t.Errorf("%d squares, first %q", n, all[:min(2, len(all))])
	}
	wants(t, body, "and 1 more, which work and have the least traffic")
}

func TestSizesOfSquares(t *testing.T) {
	for rate, want := range map[float64]int{0: 0, 0.01: 1, 0.9: 1, 1: 2, 9.9: 2, 10: 3, 99: 3, 100: 4, 1e6: 4} {
		if got := sizeOf(rate); got != want {
			t.Errorf("size of %g is %d, want %d", rate, got, want)
		}
	}
}
