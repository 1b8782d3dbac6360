package web

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestListIsFilteredAndSorted(t *testing.T) {
	w, clock := timed(t)
	w.Sync(concat(
		app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1"}, func(s *model.Service) { s.Ports[0].NodePort = 30080 }),
		app("default/shop", "10.96.0.81", []string{"10.244.1.2"}),
		app("default/broken", "10.96.0.82", []string{"10.244.1.3"}, func(s *model.Service) {
			s.Problems = []model.Problem{{Object: "Service default/broken", Reason: "is odd"}}
		}),
		app("other/none", "10.96.0.83", nil),
	)...)
	count := func(n int64) {
		w.Dataplane.Set(func(b *enginetest.Behaviour) {
			b.Connections = map[plan.Key]int64{shop: 2 * n, web: n, key("10.96.0.83"): 0}
			b.Refused = map[plan.Key]int64{key("10.96.0.83"): n}
		})
	}
	count(0)
	w.get("/")
	clock.Step(10 * time.Second)
	count(10)
	for link, want := range map[string][]string{
		"/":                                {"default/broken", "default/shop", "default/web", "other/none"},
		"/?namespace=other":                {"other/none"},
		"/?namespace=oth":                  {},
		"/?kind=nodeport":                  {"default/web"},
		"/?kind=externalip":                {},
		"/?kind=nonsense&order=nonsense":   {"default/broken", "default/shop", "default/web", "other/none"},
		"/?namespace=default&order=rate":   {"default/shop", "default/web", "default/broken"},
		"/?order=refused":                  {"other/none", "default/broken", "default/shop", "default/web"},
		"/?order=endpoints":                {"default/web", "default/broken", "default/shop", "other/none"},
		"/?order=state":                    {"other/none", "default/broken", "default/shop", "default/web"},
		"/?kind=clusterip&q=10.96.0.81":    {"default/shop"},
		"/?namespace=default&show=failing": {"default/broken"},
	} {
		body := w.get(link).Body.String()
		if diff := cmp.Diff(want, listed(body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", link, diff)
		}
	}
	body := w.get("/?namespace=default&kind=nodeport&order=rate").Body.String()
	wants(t, body, `<option value="default" selected>default</option><option value="other">other</option>`,
		`<option value="nodeport" selected>NodePort</option>`, `aria-sort="descending"><a href="/?kind=nodeport&amp;namespace=default&amp;order=rate">New conn./s</a>`)
	// A namespace that is gone stays selected.
	wants(t, w.get("/?namespace=gone").Body.String(), `<option value="gone" selected>gone</option>`, "No Service matches (4 in total).")
}
