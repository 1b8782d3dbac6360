//go:build linux

package lab_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// The proxy does not need root: a user with CAP_NET_ADMIN suffices, as in the
// DaemonSet of deploy.
func TestProxyRunsWithNetAdminOnly(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	asNobody, manifests := unprivileged(t)

	p := launch(t, l, lab.ProxyOptions{Binary: asNobody("+net_admin"), Manifests: manifests})
	settle(t, p, manifests, 0)
	answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
	mark := p.Log().Len()
	write(t, manifests, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", "10.244.1.2"), 0)
	settle(t, p, manifests, mark)
	answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
	for _, line := range failures(p) {
		// Only root can see whether there are legacy iptables rules to remove.
		if !strings.Contains(line, `"leftovers"`) && !strings.Contains(line, "Rules of another kube-proxy") {
			t.Errorf("it could not do: %s", line)
		}
	}
}

// Without it, the proxy reports what it lacks and exits.
func TestProxyWithoutNetAdmin(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	asNobody, manifests := unprivileged(t)
	p := launch(t, l, lab.ProxyOptions{Binary: asNobody("-all"), Manifests: manifests})
	eventually(t, func() bool { return strings.Contains(p.Log().String(), "or with CAP_NET_ADMIN") })
}

// unprivileged returns a world-readable directory of manifests, and a function that
// makes a script which runs the proxy as user nobody with some capabilities.
func unprivileged(t *testing.T) (asNobody func(capabilities string) string, manifests string) {
	t.Helper()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	// Directories of t.TempDir are closed to other users.
	dir, err := os.MkdirTemp("", "sluice-unprivileged-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own := filepath.Join(dir, "kube-proxy")
	copyFile(t, binary, own)
	manifests = filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, manifests, "good.yaml", goodManifests, 0)
	return func(capabilities string) string {
		script := filepath.Join(dir, "as-nobody")
		set := "=-all," + capabilities
		run := "#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps" + set +
			" --ambient-caps" + set + " --bounding-set" + set + " --no-new-privs " + own + " \"$@\"\n"
		if err := testkit.WriteExecutable(script, []byte(run)); err != nil {
			t.Fatal(err)
		}
		return script
	}, manifests
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := testkit.WriteExecutable(to, b); err != nil {
		t.Fatal(err)
	}
}
