//go:build linux

package lab_test

import (
	"strings"
	"testing"

	"sluice/internal/answer/status"
	"sluice/test/lab"
)

// Status says where Services come from, which slices are of none, and where the proxy
// listens.
func TestStatusNamesSourceAndServers(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	lost := strings.Replace(sliceWith("addressType: IPv4\nendpoints: [{addresses: [10.244.1.2]}]\n"), ", labels: {kubernetes.io/service-name: bad}", "", 1)
	write(t, dir, "good.yaml", goodManifests+"---"+lost, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag,
		"--metrics-bind-address=0.0.0.0:10349", "--healthz-bind-address=127.0.0.1:10356", "--page-bind-address=127.0.0.1:10347"}})
	settle(t, p, dir, 0)
	a.ready()
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

// At -v 6 the log has what is written to the kernel, in words of nft and iptables.
func TestVerboseLogHasElements(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		"nftables": {`"Element added" logger="nftables" table="ip sluice" set="endpoints" element="10.96.0.1 . tcp . 80 . 0 : 10.244.1.1 . 8080"`,
			`"Element removed" logger="nftables" table="ip sluice" set="endpoints" element="10.96.0.1 . tcp . 80 . 0"`},
		"iptables-nft": {`"Rules written" logger="iptables" family="IPv4" table="nat" input=<`, "--to-destination 10.244.1.1:8080"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := lab.Start(t)
			dir := t.TempDir()
			write(t, dir, "good.yaml", goodManifests, 0)
			p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{"-v=6"}})
			settle(t, p, dir, 0)
			mark := p.Log().Len()
			write(t, dir, "good.yaml", "", 0)
			settle(t, p, dir, mark)
			for _, part := range want {
				if log := p.Log().String(); !strings.Contains(log, part) {
					t.Errorf("%s is not in the log:\n%s", part, log)
				}
			}
		})
	}
}
