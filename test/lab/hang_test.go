package lab_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/test/lab"
)

// hungDirectory mounts a file system that never answers.
func hungDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this kernel has no FUSE: %v", err)
	}
	err = unix.Mount("hung", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server))
	if err != nil {
		unix.Close(server)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Close(server), unix.Unmount(dir, unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// hangs waits until a thread of the proxy waits for the file system.
func hangs(t *testing.T, p *lab.Proxy) {
	t.Helper()
	eventually(t, func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", p.PID()))
		for _, task := range tasks {
			if where, err := os.ReadFile(task); err == nil && strings.Contains(string(where), "fuse") {
				return true
			}
		}
		return false
	})
}

// A configuration that cannot be read holds up neither the start, nor what follows, nor the
// end: a pipe is refused, and a file system that does not answer is not waited for.
func TestNothingThatBlocksHoldsTheProxy(t *testing.T) {
	t.Parallel()
	hung := hungDirectory(t)
	l := lab.Start(t)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	file := filepath.Join(etc, "config.yaml")
	pipe := func() {
		t.Helper()
		if err := errors.Join(syscall.Mkfifo(file+".pipe", 0o600), os.Rename(file+".pipe", file)); err != nil {
			t.Fatal(err)
		}
	}
	start := func(config string) *lab.Proxy {
		return launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", config}})
	}

	pipe()
	refused := start(file)
	eventually(t, func() bool {
		return strings.Contains(refused.Log().String(), "Error: --config "+file+": it is not a regular file")
	})

	waiting := start(filepath.Join(hung, "config.yaml"))
	hangs(t, waiting)
	if err := waiting.Stop(); err == nil || !strings.Contains(waiting.Log().String(), "Error: told to end 1s ago") {
		t.Errorf("while its configuration cannot be read, it ends with %v", err)
	}

	write(t, etc, "config.yaml", liveConfig, 0)
	p := start(file)
	settle(t, p, dir, 0)
	pipe()
	eventually(t, func() bool { return strings.Contains(p.Log().String(), "it is not a regular file") })
	write(t, etc, "config.yaml", liveConfig+"oomScoreAdj: -998\n", 0)
	eventually(t, func() bool { return strings.Contains(configz(t, l), `"oomScoreAdj":-998`) })
	if err := errors.Join(os.Symlink(filepath.Join(hung, "config.yaml"), file+".link"), os.Rename(file+".link", file)); err != nil {
		t.Fatal(err)
	}
	hangs(t, p)
	if err := p.Stop(); err != nil {
		t.Errorf("while its file system hangs: %v", err)
	}
}
