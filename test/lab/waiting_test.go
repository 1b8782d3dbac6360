//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// A proxy that waits for another one reports that everywhere: load balancers get
// 503 with the reason, the kubelet 200, because a restart would not help, and the
// commands print it. The other one may be a visible process, or in another
// container.
func TestWaitingProxyIsReported(t *testing.T) {
	t.Parallel()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	contained := filepath.Join(t.TempDir(), "kube-proxy")
	script := fmt.Sprintf("#!/bin/sh\nexec unshare --pid --fork --kill-child=KILL %q \"$@\"\n", binary)
	if err := testkit.WriteExecutable(contained, []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Run("process", func(t *testing.T) {
		t.Parallel()
		testWaiting(t, binary, func(pid int) string { return fmt.Sprintf("(pid %d)", pid) })
	})
	t.Run("container", func(t *testing.T) {
		t.Parallel()
		testWaiting(t, contained, func(int) string { return "its pid is not known here" })
	})
}

func testWaiting(t *testing.T, binary string, named func(pid int) string) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	first := launch(t, l, lab.ProxyOptions{Manifests: dir})
	settle(t, first, dir, 0)
	const elsewhere = "127.0.0.1:10356"
	second := launch(t, l, lab.ProxyOptions{Binary: binary, Manifests: dir, Flags: []string{flag, "--healthz-bind-address=" + elsewhere}})
	who := named(first.PID())
	health := ask(t, l, "node1", elsewhere, "/healthz")
	if health.Status != 503 || !strings.Contains(health.Text, `"healthy":false`) || !strings.Contains(health.Text, `"reason":"waiting for another kube-proxy`) || !strings.Contains(health.Text, who) {
		t.Errorf("/healthz says\n%s", health.Text)
	}
	if live := ask(t, l, "node1", elsewhere, "/livez"); live.Status != 200 {
		t.Errorf("/livez says\n%s", live.Text)
	}
	a.ready()
	if out, errs, code := a.ask("status"); code != 1 || !strings.Contains(out, "NOT SERVING: waiting for another kube-proxy") || !strings.Contains(out, who) {
		t.Errorf("status ends with %d: %s%s", code, out, errs)
	}
	if out, errs, code := a.ask("explain", "default/good"); code != 2 || !strings.Contains(errs, "does nothing yet: it is waiting for another kube-proxy") {
		t.Errorf("explain ends with %d: %s%s", code, out, errs)
	}
	if out, errs, code := a.ask("services"); code != 2 || !strings.Contains(errs, "does nothing yet: it is waiting for another kube-proxy") {
		t.Errorf("services ends with %d: %s%s", code, out, errs)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	settle(t, second, dir, 0)
	eventually(t, func() bool { return ask(t, l, "node1", elsewhere, "/healthz").Status == 200 })
	eventually(t, func() bool { _, _, code := a.ask("status"); return code == 0 })
	answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
}
