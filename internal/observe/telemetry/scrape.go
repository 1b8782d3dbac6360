package telemetry

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"k8s.io/component-base/metrics"
)

// countersTimeout is shorter than the timeout of any scrape.
const countersTimeout = 5 * time.Second

// Source is a source of metrics beside the registry, with a faster way to write them
// as text.
type Source interface {
	// Write writes the metrics in the text format of Prometheus.
	Write(io.Writer) error
	metrics.Gatherer
}

// metricsPage serves the metrics of the registry and of More, in the format that the
// client prefers: text, or protobuf, the only one with native histograms.
func (s *Server) metricsPage() http.Handler {
	text, others := s.textMetrics(), metrics.HandlerFor(allMetrics{s}, metrics.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Refresh != nil {
			s.Refresh()
		}
		if isPlainScrape(r) {
			text.ServeHTTP(w, r)
		} else {
			others.ServeHTTP(w, r)
		}
	})
}

// isPlainScrape reports whether a client wants all metrics as text.
func isPlainScrape(r *http.Request) bool {
	return expfmt.Negotiate(r.Header).FormatType() == expfmt.TypeTextPlain && !r.URL.Query().Has("name[]")
}

// allMetrics gathers the metrics of the registry and of More. They have no metric
// in common.
type allMetrics struct{ *Server }

func (a allMetrics) Gather() ([]*dto.MetricFamily, error) {
	families, err := a.Metrics.Gather()
	if err != nil || a.More == nil {
		return families, err
	}
	more, err := a.More.Gather()
	return append(families, more...), err
}

// textMetrics writes the metrics of the registry as text, followed by those of More.
func (s *Server) textMetrics() http.Handler {
	registered := metrics.HandlerFor(s.Metrics, metrics.HandlerOpts{DisableCompression: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := newAnswer(takesGzip(r.Header))
		asText := r.Clone(r.Context())
		asText.Header.Del("Accept")
		registered.ServeHTTP(a, asText)
		if s.More != nil && a.status == http.StatusOK {
			if err := s.More.Write(a); err != nil {
				http.Error(w, "cannot write the metrics: "+err.Error(), http.StatusInternalServerError)
				return
			}
		}
		a.send(w)
	})
}

// answer buffers an answer, so that writing it does not wait for a slow client.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	zip    *gzip.Writer // writes to body; nil if not compressed
}

func newAnswer(compressed bool) *answer {
	a := &answer{header: http.Header{}, status: http.StatusOK}
	if compressed {
		// The level is a valid one: there is no error.
		a.zip, _ = gzip.NewWriterLevel(&a.body, gzip.BestSpeed)
	}
	return a
}

// Header, WriteHeader and Write are for http.ResponseWriter.
func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }
func (a *answer) Write(b []byte) (int, error) {
	var to io.Writer = &a.body
	if a.zip != nil {
		to = a.zip
	}
	return to.Write(b)
}

func (a *answer) send(w http.ResponseWriter) {
	header := w.Header()
	for name, values := range a.header {
		header[name] = values
	}
	if a.zip != nil {
		_ = a.zip.Close() // into memory, which never fails
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // fails only if the client is gone
}

// takesGzip reports whether a client accepts a compressed answer.
func takesGzip(header http.Header) bool {
	for _, line := range header.Values("Accept-Encoding") {
		for encoding := range strings.SplitSeq(line, ",") {
			name, quality, _ := strings.Cut(strings.ReplaceAll(encoding, " ", ""), ";")
			if name == "gzip" && quality != "q=0" {
				return true
			}
		}
	}
	return false
}
