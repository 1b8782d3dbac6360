package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// memoryCgroup creates a cgroup with a limit below that of the test, of the version that this
// machine has. It returns the directory.
func memoryCgroup(t *testing.T, limit int64) string {
	t.Helper()
	list, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	above, file := "/sys/fs/cgroup", "memory.max"
	for line := range strings.Lines(string(list)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[1] == "memory" {
			above, file = filepath.Join("/sys/fs/cgroup/memory", parts[2]), "memory.limit_in_bytes"
		}
	}
	dir, err := os.MkdirTemp(above, "sluice-lab-memory-")
	if err != nil {
		t.Skipf("this machine has no cgroups that can be written: %v", err)
	}
	t.Cleanup(func() {
		testkit.Eventually(t, func() error { return os.Remove(dir) }) // its process is being released
	})
	if err := os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0); err != nil {
		t.Skipf("this machine limits no memory by cgroups: %v", err)
	}
	return dir
}

// The proxy collects garbage in time for the memory limit of its container, unless the
// environment says otherwise.
func TestMemoryLimitOfTheContainerIsRespected(t *testing.T) {
	t.Parallel()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	const limit = 128 << 20
	group := memoryCgroup(t, limit)
	limited := filepath.Join(t.TempDir(), "kube-proxy")
	script := fmt.Sprintf("#!/bin/sh\necho $$ > %q && exec %q \"$@\"\n", filepath.Join(group, "cgroup.procs"), binary)
	if err := testkit.WriteExecutable(limited, []byte(script)); err != nil {
		t.Fatal(err)
	}
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	for env, want := range map[string]bool{"GOMEMLIMIT=": true, "GOMEMLIMIT=1GiB": false} {
		p := launch(t, l, lab.ProxyOptions{Binary: limited, Manifests: dir, Env: []string{env}})
		settle(t, p, dir, 0)
		said := strings.Contains(p.Log().String(), fmt.Sprintf(`"Respecting the memory limit of the container" limit=%d heap=%d`, limit, limit/100*80))
		if said != want {
			t.Errorf("%s: it respects the limit: %t", env, said)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}
