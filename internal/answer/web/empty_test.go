package web

import (
	"html"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/answer/status"
	"sluice/internal/source"
	"sluice/internal/source/manifest"
)

// Without Services the page says where it looks for them, and what they look like.
func TestNoServices(t *testing.T) {
	from := "manifests in /etc/sluice"
	w := newWorld(t, func(o *Options) {
		report := o.Status
		o.Status = func() *status.Report {
			r := report()
			r.Source = from
			return r
		}
	})
	w.Sync()
	body := w.get("/").Body.String()
	wants(t, body, "No Service is known</h1>", "<b>manifests in /etc/sluice</b>")
	for _, part := range []string{`id="tiles"`, `id="graph"`, `id="search"`} {
		if strings.Contains(body, part) {
			t.Errorf("page shows %s of nothing:\n%s", part, body)
		}
	}
	_, rest, _ := strings.Cut(body, "<pre>")
	example, _, _ := strings.Cut(rest, "</pre>")
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(html.UnescapeString(example)), 0o644); err != nil {
		t.Fatal(err)
	}
	content, err := manifest.Load(file, source.Proxy{NodeName: "node1"})
	if err != nil || content.Objects != 2 || len(content.Problems) > 0 {
		t.Fatalf("the example has %+v (%v):\n%s", content, err, example)
	}
	served := newWorld(t)
	served.Sync(content.Events...)
	wants(t, served.get("/").Body.String(), ">works</span>", "10.96.0.80:80")

	from, w.apiServer = "API server https://192.0.2.1:6443", &status.APIServer{Connected: true}
	body = w.get("/").Body.String()
	wants(t, body, "<b>API server https://192.0.2.1:6443</b>", "as soon as the API server has it")
	if strings.Contains(body, "<pre>") {
		t.Errorf("page asks for a file:\n%s", body)
	}
}
