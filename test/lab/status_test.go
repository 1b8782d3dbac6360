package lab_test

import (
	"strings"
	"testing"

	"sluice/internal/status"
	"sluice/test/lab"
)

// Status says where Services come from, which slices are of none, and where the proxy
// listens.
func TestStatusNamesSourceAndServers(t *testing.T) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	lost := strings.Replace(sliceWith("addressType: IPv4\nendpoints: [{addresses: [10.244.1.2]}]\n"), ", labels: {kubernetes.io/service-name: bad}", "", 1)
	write(t, dir, "good.yaml", goodManifests+"---"+lost, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag,
		"--metrics-bind-address=0.0.0.0:10349", "--healthz-bind-address=127.0.0.1:10356", "--page-bind-address=127.0.0.1:10347"}})
	settle(t, p, dir, 0)
	r := (&observer{asker: a, lab: l}).report()
	want := status.Addresses{Health: "127.0.0.1:10356", Metrics: "0.0.0.0:10349", Page: "127.0.0.1:10347"}
	if r.Source != "manifests in "+dir || r.Addresses != want || r.Memory == 0 || r.OrphanSlices != 1 {
		t.Errorf("the report has %q, %+v, %d bytes, %d slices of no Service", r.Source, r.Addresses, r.Memory, r.OrphanSlices)
	}
	text, _, _ := a.ask("status")
	for _, part := range []string{"in sync, manifests in " + dir, "health on 127.0.0.1:10356, metrics on 0.0.0.0:10349, page on 127.0.0.1:10347",
		"1 more slice not used: the label kubernetes.io/service-name is missing", " MB\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}
