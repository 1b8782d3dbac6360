//go:build linux

package lab_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
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

	for _, tt := range []struct {
		what, after string
		options     lab.ProxyOptions
	}{
		{"configuration", "1s", lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", filepath.Join(hung, "config.yaml")}}},
		{"kubeconfig", "1s", lab.ProxyOptions{Flags: []string{"--manifests=", "--kubeconfig", filepath.Join(hung, "kubeconfig")}}},
		{"manifests", "10s", lab.ProxyOptions{Manifests: filepath.Join(hung, "manifests")}}, // others may end in order
	} {
		waiting := launch(t, l, tt.options)
		hangs(t, waiting)
		if err := waiting.Stop(); err == nil || !strings.Contains(waiting.Log().String(), "Error: told to end "+tt.after+" ago") {
			t.Errorf("while its %s cannot be read, it ends with %v", tt.what, err)
		}
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

// A command of iptables that hangs holds up the end of the proxy no longer than that takes anyway, and
// does not outlive it.
func TestHangingIPTablesHoldsNothing(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(l *iptablesLab) {
		dir := l.t.TempDir()
		real := filepath.Join(dir, "real")
		if err := os.Mkdir(real, 0o755); err != nil {
			l.t.Fatal(err)
		}
		l.copyPrograms(real)
		programs, err := os.ReadDir(real)
		if err != nil {
			l.t.Fatal(err)
		}
		hangs, hanging := filepath.Join(l.t.TempDir(), "hangs"), filepath.Join(l.t.TempDir(), "hanging")
		for _, program := range programs {
			script := fmt.Sprintf("#!/bin/sh\nif [ -e %s ]; then echo $$ > %s; exec /bin/sleep 1000; fi\nexec %s/real/%s \"$@\"\n", hangs, hanging, systemDir, program.Name())
			if err := testkit.WriteExecutable(filepath.Join(dir, program.Name()), []byte(script)); err != nil {
				l.t.Fatal(err)
			}
		}
		l.start(lab.ProxyOptions{Binary: l.withPrograms(dir)})
		settle(l.t, l.proxy, l.dir, 0)
		write(l.t, filepath.Dir(hangs), filepath.Base(hangs), "", 0)
		l.moveEndpoint()
		var pid string
		eventually(l.t, func() bool {
			text, err := os.ReadFile(hanging)
			pid = strings.TrimSpace(string(text))
			return err == nil && pid != ""
		})
		if err := l.proxy.Stop(); err != nil {
			l.t.Error(err)
		}
		eventually(l.t, func() bool {
			_, err := os.Stat("/proc/" + pid)
			return errors.Is(err, os.ErrNotExist)
		})
	})
}

// A pipe in place of the token or of the authority's certificate is refused at the start, and later neither
// waited for nor in the way of the end.
func TestCredentialsFromAPipeHoldNothing(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"tokenFile", "certificate-authority"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			token := filepath.Join(t.TempDir(), "token")
			write(t, filepath.Dir(token), "token", "secret", 0)
			c := newSecureCluster(t, fmt.Sprintf("{tokenFile: %q}", token))
			file := token
			if what != "tokenFile" {
				file = c.authorityFile
			}
			running := launch(t, c.lab, lab.ProxyOptions{Flags: c.flags})
			c.asker.ready()
			c.answers("pod1")
			if err := errors.Join(syscall.Mkfifo(file+".pipe", 0o600), os.Rename(file+".pipe", file)); err != nil {
				t.Fatal(err)
			}
			c.api.SetFault(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusUnauthorized) })
			c.api.Disconnect()
			(&observer{asker: c.asker, lab: c.lab}).everywhere("provide credentials")
			c.answers("pod1")
			if err := running.Stop(); err != nil {
				t.Error(err)
			}
			refused := launch(t, c.lab, lab.ProxyOptions{Flags: c.flags})
			eventually(t, func() bool {
				return strings.Contains(refused.Log().String(), what+": "+file+" cannot be used: it is not a regular file")
			})
		})
	}
}
