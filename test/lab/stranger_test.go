//go:build linux

package lab_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/netns"
	"sluice/test/lab"
)

// onThreads returns what runs functions on a host, each on a thread that ends with it.
func onThreads(t *testing.T, l *lab.Lab, host string) func(func() error) error {
	t.Helper()
	h, err := l.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := os.Open(filepath.Join("/run/netns", h.Namespace.Name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return func(f func() error) error { return netns.Do(int(ns.Fd()), f) }
}

// asStranger runs a function on a host with a user but no right whatever, as a process in a
// container on the node's network may be.
func asStranger(host func(func() error) error, user int, f func() error) error {
	return host(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 {
			return errno
		}
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			return err
		}
		return f()
	})
}

const nobody = 65534

// lockNames are those of the sockets of the instance lock.
func lockNames() []string {
	names := []string{"@sluice/kube-proxy"}
	for i := 1; i < 8; i++ {
		names = append(names, fmt.Sprintf("@sluice/kube-proxy-%d", i))
	}
	return names
}

// Processes without the right to program a node, one of root without capabilities among them, can
// neither keep a proxy from starting, whatever sockets they have, nor let a second one believe
// that there is no first, however they flood its socket.
func TestStrangersHaveNoPartInTheLock(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	node := onThreads(t, l, "node1")
	dir, other := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	write(t, other, "good.yaml", goodManifests, 0)
	// waits starts a second proxy, which must do nothing.
	waits := func(t *testing.T) {
		t.Helper()
		second := launch(t, l, lab.ProxyOptions{Manifests: other})
		eventually(t, func() bool { return strings.Contains(second.Log().String(), "Another proxy programs this node") })
		time.Sleep(300 * time.Millisecond) // more than it waits before it tries again
		if strings.Contains(second.Log().String(), `"Programmed"`) {
			t.Error("two proxies program the node")
		}
		if err := second.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		user  int
		names []string
	}{{nobody, lockNames()}, {0, lockNames()[:1]}, {0, lockNames()}} {
		t.Run(fmt.Sprintf("user %d has %d sockets", tt.user, len(tt.names)), func(t *testing.T) {
			err := asStranger(node, tt.user, func() error {
				for _, name := range tt.names {
					socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
					if err != nil {
						return err
					}
					t.Cleanup(func() { socket.Close() })
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			p := launch(t, l, lab.ProxyOptions{Manifests: dir})
			settle(t, p, dir, 0)
			answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
			waits(t)
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("flood", func(t *testing.T) {
		p := launch(t, l, lab.ProxyOptions{Manifests: dir})
		settle(t, p, dir, 0)
		var stop atomic.Bool
		var flood sync.WaitGroup
		defer flood.Wait()
		defer stop.Store(true)
		var refused atomic.Int64
		for range 4 {
			flood.Go(func() {
				if err := asStranger(node, nobody, func() error { return floodLock(&stop, &refused) }); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, func() bool { return refused.Load() > 100 })
		for range 2 {
			waits(t)
		}
		mark := p.Log().Len()
		write(t, dir, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", "10.244.1.2"), 0)
		settle(t, p, dir, mark)
	})
}

// floodLock connects to the holder's socket, without waiting, until it is told to stop. It counts
// how often there was no room in its queue.
func floodLock(stop *atomic.Bool, refused *atomic.Int64) error {
	for !stop.Load() {
		var held []int
		for range 800 {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			held = append(held, fd)
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: lockNames()[0]})
			if errors.Is(err, unix.EAGAIN) {
				refused.Add(1)
			} else if err != nil {
				return err
			}
		}
		for _, fd := range held {
			unix.Close(fd)
		}
	}
	return nil
}
