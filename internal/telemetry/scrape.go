package telemetry

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/metrics"
)

// countersTimeout is less than anybody who scrapes waits.
const countersTimeout = 5 * time.Second

// metricsPage shows the metrics of the registry, followed by those that More
// writes. It is always text, the one form that can be added to, and that every
// client takes.
func (s *Server) metricsPage() http.Handler {
	registered := metrics.HandlerFor(s.Metrics, metrics.HandlerOpts{DisableCompression: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Refresh != nil {
			s.Refresh()
		}
		a := newAnswer(takesGzip(r.Header))
		asText := r.Clone(r.Context())
		asText.Header.Del("Accept")
		registered.ServeHTTP(a, asText)
		if s.More != nil && a.status == http.StatusOK {
			if err := s.More(a); err != nil {
				http.Error(w, "cannot write the metrics: "+err.Error(), http.StatusInternalServerError)
				return
			}
		}
		a.send(w)
	})
}

// answer is gathered before it is sent, so that no one who writes it waits for a
// client that reads slowly.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	zip    *gzip.Writer // in front of body; nil for a plain one
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
		_ = a.zip.Close() // into memory, which takes all
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // who went away does not want the answer
}

// takesGzip tells whether a client wants its answer compressed.
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
