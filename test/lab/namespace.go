//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mountDir is where "ip netns" looks for namespaces.
const mountDir = "/run/netns"

// Namespace is a network namespace with a thread that lives in it.
type Namespace struct {
	// Name is the name that "ip netns" knows it by.
	Name string

	file   *os.File // the namespace itself, to move links into it
	links  *netlink.Handle
	calls  chan func()
	closed sync.Once
	quit   chan struct{} // asks the thread to end
	done   chan struct{} // it has
}

// newNamespace makes an empty network namespace and gives it a name.
func newNamespace(name string) (*Namespace, error) {
	n := &Namespace{Name: name, calls: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
	ready := make(chan error)
	go n.live(ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("make network namespace %s: %w", name, err)
	}
	return n, nil
}

// live enters the new namespace and runs the calls handed to it. Its thread is
// never unlocked, so that it ends with the goroutine instead of serving others
// in the wrong namespace.
func (n *Namespace) live(ready chan<- error) {
	runtime.LockOSThread()
	defer close(n.done)
	if err := n.enter(); err != nil {
		n.unmount()
		ready <- err
		return
	}
	ready <- nil
	for {
		select {
		case call := <-n.calls:
			call()
		case <-n.quit:
			return
		}
	}
}

func (n *Namespace) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	file, err := os.Open(self)
	if err != nil {
		return err
	}
	n.file = file
	if err := prepareMountDir(); err != nil {
		return fmt.Errorf("prepare %s: %w", mountDir, err)
	}
	if err := os.WriteFile(n.path(), nil, 0o444); err != nil {
		return err
	}
	if err := unix.Mount(self, n.path(), "none", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", n.path(), err)
	}
	n.links, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	return err
}

// prepareMountDir makes the directory a shared mount, as "ip netns add" does. If that program found
// one that is none, it would mount the directory over itself with all that is in it, and the names
// of running labs could not be removed any more.
var prepareMountDir = sync.OnceValue(func() error {
	if err := os.MkdirAll(mountDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(mountDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil { // other labs may start just now
		return err
	}
	share := func() error { return unix.Mount("", mountDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	if err := share(); !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := unix.Mount(mountDir, mountDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return share()
})

func (n *Namespace) path() string { return filepath.Join(mountDir, n.Name) }

// Do runs f on a thread in the namespace. Sockets and processes of f belong to the
// namespace; f must be short, because the namespace has only one thread.
func (n *Namespace) Do(f func() error) error {
	result := make(chan error, 1)
	select {
	case n.calls <- func() { result <- f() }:
		return <-result
	case <-n.done:
		return fmt.Errorf("network namespace %s: %w", n.Name, os.ErrClosed)
	}
}

// close releases the namespace. The kernel removes it with its last socket and
// process.
func (n *Namespace) close() error {
	var err error
	n.closed.Do(func() {
		close(n.quit)
		<-n.done
		n.links.Close()
		err = errors.Join(n.file.Close(), n.unmount())
		if rm := os.Remove(n.XtablesLock()); rm != nil && !errors.Is(rm, os.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	})
	return err
}

func (n *Namespace) unmount() error { return removeMount(n.path()) }

// removeMount removes the name of a namespace.
func removeMount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		err = nil // not mounted
	}
	if rm := os.Remove(path); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

// sysctls writes kernel settings of the namespace, each as path and value.
func (n *Namespace) sysctls(settings [][2]string) error {
	return n.Do(func() error {
		for _, s := range settings {
			err := os.WriteFile("/proc/sys/net/"+s[0], []byte(s[1]), 0)
			optional := strings.HasPrefix(s[0], "bridge/") || strings.HasPrefix(s[0], "netfilter/")
			if errors.Is(err, os.ErrNotExist) && optional {
				continue // without the module it does not do what the setting is about either
			}
			if err != nil {
				return fmt.Errorf("set sysctl: %w", err)
			}
		}
		return nil
	})
}

// socket opens a non-blocking socket in the namespace and lets prepare bind it
// or set options.
func (n *Namespace) socket(domain, kind, protocol int, prepare func(fd int) error) (*os.File, error) {
	var file *os.File
	err := n.Do(func() error {
		fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		if err := prepare(fd); err != nil {
			unix.Close(fd)
			return err
		}
		file = os.NewFile(uintptr(fd), n.Name)
		return nil
	})
	return file, err
}
