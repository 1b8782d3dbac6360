//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// What a container does not allow, or a machine has no more of, keeps the proxy neither from serving
// nor from following changes.
func TestProxyGetsAlongWithLittle(t *testing.T) {
	t.Parallel()
	call := func(number uint32, errno unix.Errno) func(*testing.T) lab.ProxyOptions {
		return func(t *testing.T) lab.ProxyOptions {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			binary, err := lab.Binary()
			if err != nil {
				t.Fatal(err)
			}
			return lab.ProxyOptions{Binary: self, Env: []string{fmt.Sprintf("%s=%d %d", refusedCall, number, errno), lab.BinaryVariable + "=" + binary}}
		}
	}
	slow := func(percent int) func(*testing.T) lab.ProxyOptions {
		return func(t *testing.T) lab.ProxyOptions {
			return lab.ProxyOptions{Binary: newProcessorCgroup(t, percent).proxy(t)}
		}
	}
	files := func(limit int) func(*testing.T) lab.ProxyOptions {
		return func(t *testing.T) lab.ProxyOptions { return lab.ProxyOptions{Binary: withFiles(t, limit)} }
	}
	for _, tt := range []struct {
		name, mode string
		options    func(*testing.T) lab.ProxyOptions
		says       string // in its log
	}{
		{"no instance of inotify", "nftables", call(unix.SYS_INOTIFY_INIT1, unix.EMFILE), "fs.inotify.max_user_instances"},
		{"no watch of inotify", "nftables", call(unix.SYS_INOTIFY_ADD_WATCH, unix.ENOSPC), "fs.inotify.max_user_watches"},
		{"no entering of namespaces", "nftables", call(unix.SYS_SETNS, unix.EPERM), ""},
		{"no splice", "userspace", call(unix.SYS_SPLICE, unix.ENOSYS), ""},
		{"splice is not allowed", "userspace", call(unix.SYS_SPLICE, unix.EPERM), ""},
		{"64 files", "nftables", files(64), ""},
		{"24 files", "nftables", files(24), ""},
		{"160 files", "userspace", files(160), ""},
		{"a twentieth of a processor", "nftables", slow(5), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := lab.Start(t)
			dir := t.TempDir()
			write(t, dir, "good.yaml", goodManifests, 0)
			o := tt.options(t)
			o.Manifests, o.Flags = dir, []string{"--cluster-cidr=10.244.0.0/16"}
			p := startProxy(t, l, tt.mode, o)
			settle(t, p, dir, 0)
			to := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")}
			answered(t, l, to.To)
			write(t, dir, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", hostAddr(t, l, "pod2").String()), 0)
			testkit.Eventually(t, func() error {
				if o := l.Connect(t.Context(), to); o.By != "pod2" {
					return fmt.Errorf("%v, want pod2", o)
				}
				return nil
			})
			if page := ask(t, l, "node1", healthServer, "/healthz"); page.Status != 200 {
				t.Errorf("/healthz is %d: %s", page.Status, page.Text)
			}
			if log := p.Log().String(); !strings.Contains(log, tt.says) {
				t.Errorf("the log does not name %s", tt.says)
			}
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A proxy that could forward nothing says so, and how much is needed, instead of serving nobody.
func TestTooFewFilesToForwardAreRefused(t *testing.T) {
	t.Parallel()
	requireSupport(t, "userspace")
	l := lab.Start(t)
	p := startProxy(t, l, "userspace", lab.ProxyOptions{Binary: withFiles(t, 64), Manifests: t.TempDir()})
	eventually(t, func() bool {
		return strings.Contains(p.Log().String(), "Error: only 64 files can be open, which leaves none for connections: raise the limit")
	})
}

// Where its socket cannot be made, the proxy says why, and all but the commands that ask it works.
func TestNoRoomForTheControlSocket(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	full := filepath.Dir(filepath.Dir(a.socket))
	if err := unix.Mount("full", full, "tmpfs", 0, "size=4k,nr_inodes=1,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(full, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	settle(t, p, dir, 0)
	answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
	eventually(t, func() bool { return strings.Contains(p.Log().String(), "no space left on device") })
	if _, _, code := a.ask("status"); code != 2 {
		t.Errorf("status ends with %d", code)
	}
}
