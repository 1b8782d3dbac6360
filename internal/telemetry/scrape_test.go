package telemetry

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// more writes one metric beside those of the registry.
func more(o *ServerOptions) {
	o.More = func(w io.Writer) error {
		_, err := io.WriteString(w, "sluice_more 1\n")
		return err
	}
}

func TestMetricsAreTextWhateverIsAskedForAndCompressedForThoseWhoLikeIt(t *testing.T) {
	tests := []struct {
		name       string
		header     http.Header
		compressed bool
	}{
		{"a browser or curl", http.Header{}, false},
		{"Prometheus", http.Header{"Accept-Encoding": {"gzip"}, "Accept": {"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"}}, true},
		{"with a choice", http.Header{"Accept-Encoding": {"deflate, gzip;q=0.5"}}, true},
		{"without the choice", http.Header{"Accept-Encoding": {"br, gzip; q=0"}}, false},
		{"protobuf", http.Header{"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header = tt.header
			w := httptest.NewRecorder()
			newWorld(t).server(more).Handler().ServeHTTP(w, r)
			answer := w.Result()
			var body io.Reader = answer.Body
			if got := answer.Header.Get("Content-Encoding") == "gzip"; got != tt.compressed {
				t.Fatalf("compressed: %v, want %v", got, tt.compressed)
			}
			if tt.compressed {
				var err error
				if body, err = gzip.NewReader(answer.Body); err != nil {
					t.Fatal(err)
				}
			}
			text, err := io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"# TYPE sluice_frontends gauge\n", "\nsluice_more 1\n"} {
				if !strings.Contains(string(text), want) {
					t.Errorf("the answer lacks %q", want)
				}
			}
			if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
				t.Errorf("the answer is of type %q", kind)
			}
		})
	}
}

func TestMetricsThatCannotBeWrittenAreAnError(t *testing.T) {
	broken := func(o *ServerOptions) { o.More = func(io.Writer) error { return errors.New("out of ink") } }
	r := ask(newWorld(t).server(broken), http.MethodGet, "/metrics", "", "")
	if body := bodyOf(t, r); r.StatusCode != 500 || !strings.Contains(body, "out of ink") {
		t.Errorf("answer is %d %q", r.StatusCode, body)
	}
}

func TestProgrammingTimeIsFromWhenAChangeCameInUntilItsCommit(t *testing.T) {
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
			tt.change.News = model.News{Since: morning}
			w.clock.Step(2 * time.Second)
			w.commit(time.Second, tt.change, dataplane.Result{})
			w.commit(time.Second, set(frontend("10.96.0.2", mail)), dataplane.Result{}) // a retry: nothing came in
			w.want("sluice_programming_seconds", tt.want...)
		})
	}
}

func BenchmarkOnCommit(b *testing.B) {
	var t testing.T
	w := newWorld(&t)
	change := set(frontend("10.0.0.1", web, internalGap))
	b.ReportAllocs()
	for b.Loop() {
		w.commit(time.Millisecond, change, dataplane.Result{Elements: 3})
	}
}
