//go:build linux

package lab_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/observe/verdict"
	"sluice/test/lab"
)

// A refused manifest is reported everywhere, with file and line, until it is fixed.
func TestRefusedManifestsAreReported(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	write(t, dir, "bad.yaml", serviceWith("  clusterIP: 10.96.0.300\n  ports: [{port: 80}]\n"), 0)
	launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})

	const mistake = "bad.yaml: document 1, line 6"
	pages := map[string]func() string{
		"status":                  func() string { text, _, _ := a.ask("status"); return text },
		"explain of that Service": func() string { text, _, _ := a.ask("explain", "default/bad"); return text },
		"page":                    func() string { return metricsPage(l, "/") },
	}
	for name, page := range pages {
		text := ""
		eventually(t, func() bool { text = page(); return strings.Contains(text, mistake) })
		if !strings.Contains(text, "spec.clusterIP") {
			t.Errorf("%s does not name the field:\n%s", name, text)
		}
	}
	eventually(t, func() bool { return strings.Contains(metricsPage(l, "/metrics"), "\nsluice_invalid_manifests 1\n") })
	said(t, a, l, "serving", mistake, 0)
	failing(t, a, l, "bad", verdict.Refused, "invalid-object")
	judged(t, a, l, goodAddress)

	if err := os.Remove(filepath.Join(dir, "bad.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(metricsPage(l, "/metrics"), "\nsluice_invalid_manifests 0\n") })
	if text, _, code := a.ask("status"); code != 0 || strings.Contains(text, mistake) {
		t.Errorf("status ends with %d:\n%s", code, text)
	}
}

// metricsPage returns a page of the metrics server of node1, empty if there is
// none.
func metricsPage(l *lab.Lab, path string) string {
	page, err := l.Get(lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249")}, path)
	if err != nil || page.Status != 200 {
		return ""
	}
	return page.Text
}
