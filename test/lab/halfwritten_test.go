//go:build linux

package lab_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/test/lab"
)

// A file that is written in place is empty, and then incomplete, for a moment. Its Services
// stay in force meanwhile, and a Service that waits for their addresses does not get them.
func TestHalfWrittenManifestLosesNothing(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	file := filepath.Join(dir, "good.yaml")
	rewrite := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(goodManifests)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	settle(t, p, dir, 0)
	mark := p.Log().Len()
	write(t, dir, "ant.yaml", strings.NewReplacer("good", "ant", "10.244.1.1", "10.244.1.2").Replace(goodManifests), 0)
	settle(t, p, dir, mark)

	flow := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")}
	answers := func(host string) bool {
		o := l.Connect(t.Context(), flow)
		return o.Kind == lab.Answered && o.By == host
	}
	logged := func(mark int, text string) func() bool {
		return func() bool {
			lines, _ := p.Log().From(mark)
			return strings.Contains(strings.Join(lines, "\n"), text)
		}
	}
	if !answers("pod1") {
		t.Fatal("the first Service does not have the address")
	}
	traffic, err := l.StartTraffic(t.Context(), []lab.Flow{flow}, lab.TrafficOptions{Sessions: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"", goodManifests[:len(goodManifests)/3], strings.TrimSpace(goodManifests[:strings.Index(goodManifests, "---")])} {
		mark, begin := p.Log().Len(), time.Now()
		rewrite(part)
		eventually(t, logged(mark, "looks half written"))
		if !answers("pod1") {
			t.Errorf("another Service answers while the file has %d bytes", len(part))
		}
		rewrite(goodManifests)
		if took := time.Since(begin); took > 1900*time.Millisecond {
			t.Skipf("the machine is too busy: it took %s to write the file again", took)
		}
		settle(t, p, dir, mark)
		if !answers("pod1") {
			t.Errorf("another Service answers after the file had %d bytes", len(part))
		}
	}
	if count := traffic.Stop(); count.Lost() > 0 {
		t.Errorf("connections were lost: %v", count)
	}

	// What is deleted is gone at once, and if it is back soon, it is what it was.
	mark = p.Log().Len()
	begin := time.Now()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return answers("pod2") })
	rewrite(goodManifests)
	if took := time.Since(begin); took > 1900*time.Millisecond {
		t.Skipf("the machine is too busy: it took %s to write the file again", took)
	}
	settle(t, p, dir, mark)
	eventually(t, func() bool { return answers("pod1") })

	// What stays empty is taken for what is meant, and reported.
	rewrite("")
	eventually(t, func() bool { return answers("pod2") })
	if text, _, _ := a.ask("status"); !strings.Contains(text, "good.yaml: it became empty, which removed 2 objects") {
		t.Errorf("status does not report the loss:\n%s", text)
	}
	rewrite(goodManifests)
	eventually(t, func() bool { text, _, _ := a.ask("status"); return !strings.Contains(text, "it became empty") })
}
