package perservice

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"sluice/internal/model"
)

// asText writes families in one format, so that they can be compared.
func asText(t *testing.T, families []*dto.MetricFamily) string {
	t.Helper()
	var out strings.Builder
	for _, family := range families {
		for _, m := range family.Metric {
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		}
		if _, err := expfmt.MetricFamilyToText(&out, family); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func TestGatherAgreesWithWrite(t *testing.T) {
	tests := []struct {
		name  string
		world func(*testing.T) *world
	}{
		{"all has happened", func(t *testing.T) *world { return eventful(t, web) }},
		{"a name that is no text", func(t *testing.T) *world { return eventful(t, model.Name{Namespace: "a\xffb", Name: "c\"d\n"}) }},
		{"Services that share series", func(t *testing.T) *world {
			w := newWorld(t, func(o *Options) { o.Limit = 10 })
			w.begin(w.many(512)...)
			return w
		}},
		{"nothing but what is no Service's", func(t *testing.T) *world { return newWorld(t, func(o *Options) { o.Off = true }) }},
		{"in a mode that does not count", func(t *testing.T) *world {
			w := newWorld(t, func(o *Options) { o.Traffic = nil })
			w.begin(at("10.96.0.1", web))
			return w
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := tt.world(t)
			written := w.parse()
			maps.DeleteFunc(written, func(_ string, f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
			gathered, err := w.collector.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var want []*dto.MetricFamily
			for _, f := range gathered {
				want = append(want, written[f.GetName()])
				delete(written, f.GetName())
			}
			if len(written) > 0 {
				t.Errorf("not gathered: %v", slices.Sorted(maps.Keys(written)))
			}
			if diff := cmp.Diff(asText(t, want), asText(t, gathered)); diff != "" {
				t.Errorf("(-written +gathered):\n%s", diff)
			}
		})
	}
}

func BenchmarkGather(b *testing.B) {
	w := newWorld(b, func(o *Options) { o.Limit = 1 << 20 })
	w.begin(w.many(10_000)...)
	b.ReportAllocs()
	for b.Loop() {
		w.clock.Step(countersAge)
		if _, err := w.collector.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
