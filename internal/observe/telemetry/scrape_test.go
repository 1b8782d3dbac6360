//go:build linux

package telemetry

import (
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/plan"
)

// more is a Source with one metric, or an error.
type more struct{ err error }

func (m more) Write(w io.Writer) error {
	if m.err != nil {
		return m.err
	}
	_, err := io.WriteString(w, "# TYPE sluice_more gauge\nsluice_more 1\n")
	return err
}

func (m more) Gather() ([]*dto.MetricFamily, error) {
	name, value := "sluice_more", 1.0
	return []*dto.MetricFamily{{
		Name: &name, Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &value}}},
	}}, m.err
}

func withMore(o *ServerOptions) { o.More = more{} }

const (
	textFormat     = "text/plain; version=0.0.4"
	protobufFormat = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

	acceptProtobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	// acceptAll is the header of Prometheus without native histograms.
	acceptAll = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)

func TestMetricsFormatAndCompression(t *testing.T) {
	tests := []struct {
		name       string
		header     http.Header
		format     string
		compressed bool
	}{
		{"a browser or curl", http.Header{}, textFormat, false},
		{"Prometheus", http.Header{"Accept-Encoding": {"gzip"}, "Accept": {acceptAll}}, textFormat, true},
		{"with a choice", http.Header{"Accept-Encoding": {"deflate, gzip;q=0.5"}}, textFormat, true},
		{"without the choice", http.Header{"Accept-Encoding": {"br, gzip; q=0"}}, textFormat, false},
		{"protobuf", http.Header{"Accept": {acceptProtobuf}}, protobufFormat, false},
		{"Prometheus that reads native histograms", http.Header{"Accept-Encoding": {"gzip"}, "Accept": {acceptProtobuf + ";q=0.6," + acceptAll}}, protobufFormat, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header = tt.header
			world := newWorld(t)
			world.commit(time.Second, set(frontend("10.96.0.1", web)), dataplane.Result{Elements: 3})
			w := httptest.NewRecorder()
			world.server(withMore).Handler().ServeHTTP(w, r)
			answer := w.Result()
			if got := answer.Header.Get("Content-Encoding") == "gzip"; got != tt.compressed {
				t.Fatalf("compressed: %v, want %v", got, tt.compressed)
			}
			if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, tt.format) {
				t.Errorf("the answer is of type %q", kind)
			}
			families := read(t, answer)
			for name, want := range map[string]dto.MetricType{"sluice_frontends": dto.MetricType_GAUGE, "sluice_more": dto.MetricType_GAUGE, "sluice_transaction_elements": dto.MetricType_HISTOGRAM} {
				if f := families[name]; f == nil || f.GetType() != want || len(f.GetMetric()) == 0 {
					t.Errorf("metric %s is %v", name, f)
				}
			}
		})
	}
}

// read reads metrics in any format, as Prometheus does.
func read(t *testing.T, answer *http.Response) map[string]*dto.MetricFamily {
	t.Helper()
	body := io.Reader(answer.Body)
	if answer.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(answer.Body); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]*dto.MetricFamily{}
	decoder := expfmt.NewDecoder(body, expfmt.ResponseFormat(answer.Header))
	for {
		family := &dto.MetricFamily{}
		if err := decoder.Decode(family); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out[family.GetName()] = family
	}
}

func TestMetricsByName(t *testing.T) {
	for _, accept := range []string{"", acceptProtobuf} {
		answer := ask(newWorld(t).server(withMore), http.MethodGet, "/metrics?name[]=sluice_more", accept, "")
		if got := slices.Collect(maps.Keys(read(t, answer))); !slices.Equal(got, []string{"sluice_more"}) {
			t.Errorf("Accept %q: the answer has %v", accept, got)
		}
	}
}

func TestMetricsErrors(t *testing.T) {
	broken := func(o *ServerOptions) { o.More = more{errors.New("out of ink")} }
	for _, accept := range []string{"", acceptProtobuf} {
		r := ask(newWorld(t).server(broken), http.MethodGet, "/metrics", accept, "")
		if body := bodyOf(t, r); r.StatusCode != 500 || !strings.Contains(body, "out of ink") {
			t.Errorf("Accept %q: answer is %d %q", accept, r.StatusCode, body)
		}
	}
}

func TestProgrammingTime(t *testing.T) {
	tests := []struct {
		name   string
		change *plan.Change
		want   []string
	}{
		{"a change", set(frontend("10.96.0.1", web)), []string{"1 of 2"}},
		{"one that leaves the kernel nothing to do", &plan.Change{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.clock.Step(2 * time.Second)
			w.committed(time.Second, engine.Commit{Kind: engine.Apply, Change: tt.change, Events: engine.Events{Since: morning}})
			w.commit(time.Second, set(frontend("10.96.0.2", mail)), dataplane.Result{}) // a retry: nothing came in
			w.want("sluice_programming_seconds", tt.want...)
		})
	}
}

func BenchmarkCommitted(b *testing.B) {
	var t testing.T
	w := newWorld(&t)
	change := set(frontend("10.0.0.1", web, internalGap))
	b.ReportAllocs()
	for b.Loop() {
		w.commit(time.Millisecond, change, dataplane.Result{Elements: 3})
	}
}
