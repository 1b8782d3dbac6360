//go:build linux

package lab_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// The files of a ConfigMap are replaced all at once, by a link, and its predecessor is removed at once. That
// may happen all the time, and a configuration may be edited in place meanwhile, also to nonsense: no
// connection is lost, and what is in force at the end is the last of each.
func TestSwapsAndEditsLoseNothing(t *testing.T) {
	t.Parallel()
	const services = 50
	swaps, edits := testkit.Extent(20, 200, 200), testkit.Extent(30, 300, 300)
	l := lab.Start(t)
	dir, etc := t.TempDir(), t.TempDir()
	swap := func(version int, pod string) {
		t.Helper()
		var b strings.Builder
		for i := range services {
			name, ip := fmt.Sprint("web-", i), fmt.Sprint("10.96.0.", 1+i)
			service, _, _ := strings.Cut(strings.NewReplacer("name: good", "name: "+name, "10.96.0.1", ip).Replace(goodManifests), "---")
			b.WriteString(service + lab.EndpointSlice("IPv4", name, "", pod) + "---")
		}
		data, link := filepath.Join(dir, "..data"), filepath.Join(dir, "..link")
		now := filepath.Join(dir, fmt.Sprint("..", version))
		before, _ := os.Readlink(data)
		err := errors.Join(os.Mkdir(now, 0o755), os.WriteFile(filepath.Join(now, "all.yaml"), []byte(b.String()), 0o644),
			os.Symlink(filepath.Base(now), link), os.Rename(link, data))
		if before != "" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, before)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	swap(0, "pod1")
	if err := os.Symlink("..data/all.yaml", filepath.Join(dir, "all.yaml")); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(etc, "config.yaml")
	edit := func(content string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit(liveConfig)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", config}})
	flows := make([]lab.Flow, services)
	for i := range flows {
		flows[i] = lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(1 + i)}), 80)}
	}
	by := func(pod string) {
		t.Helper()
		testkit.Eventually(t, func() error {
			for i, o := range l.Probe(t.Context(), flows) {
				if o.By != pod {
					return fmt.Errorf("%v: %v, want %s", flows[i], o, pod)
				}
			}
			return nil
		})
	}
	by("pod1")
	traffic, err := l.StartTraffic(t.Context(), flows, lab.TrafficOptions{Rate: 50, Sessions: 1, Interval: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for i := range swaps {
		swap(1+i, []string{"pod2", "pod1"}[i%2])
	}
	swap(1+swaps, "pod2")
	by("pod2")
	for i := range edits {
		edit([]string{"mode: [nonsense " + fmt.Sprint(i), liveConfig, liveConfig + "nftables: {minSyncPeriod: 10ms}\n"}[i%3])
	}
	edit(liveConfig + "oomScoreAdj: -997\n")
	eventually(t, func() bool { return strings.Contains(configz(t, l), `"oomScoreAdj":-997`) })
	swap(2+swaps, "pod1")
	by("pod1")
	if page := ask(t, l, "node1", healthServer, "/healthz"); page.Status != 200 {
		t.Errorf("/healthz is %d: %s", page.Status, page.Text)
	}
	if count := traffic.Stop(); count.Lost() > 0 {
		t.Errorf("connections were lost: %v", count)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
