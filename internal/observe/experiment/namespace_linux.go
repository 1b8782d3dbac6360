package experiment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/netns"
	"sluice/internal/model"
)

// namedDir has the network namespaces that have a name. Container runtimes keep those of pods
// there.
const namedDir = "/run/netns"

// maxNamespaces is how many are searched for an address.
const maxNamespaces = 4096

// Namespace is a network namespace. The zero one is that of the node.
type Namespace struct {
	name string
	file *os.File
}

// Node reports whether it is that of the node.
func (n Namespace) Node() bool { return n.file == nil }

func (n Namespace) String() string {
	if n.Node() {
		return "this node"
	}
	return "network namespace " + n.name
}

// Close closes it.
func (n Namespace) Close() {
	if n.file != nil {
		_ = n.file.Close() // it was only read
	}
}

func (n Namespace) do(f func() error) error {
	if n.Node() {
		return f()
	}
	return netns.Do(int(n.file.Fd()), f)
}

// Open opens a network namespace by its name, its path or the number of a process in it.
func Open(name string) (Namespace, error) {
	path := name
	switch {
	case strings.Trim(name, "0123456789") == "" && name != "":
		path = "/proc/" + name + "/ns/net"
	case !strings.Contains(name, "/"):
		path = filepath.Join(namedDir, name)
	}
	file, err := os.Open(path)
	if err != nil {
		return Namespace{}, fmt.Errorf("there is no network namespace %q that this proxy can see: %w (name one of ip netns list, a path or the number of a process)", name, errors.Unwrap(err))
	}
	n := Namespace{name, file}
	if err := n.do(func() error { return nil }); err != nil {
		n.Close()
		return Namespace{}, fmt.Errorf("%q is no network namespace: %w", name, err)
	}
	return n, nil
}

// Having returns the network namespace that has an address, among those with a name and those
// of processes that this one can see.
func Having(addr netip.Addr) (Namespace, error) {
	home, err := inode("/proc/thread-self/ns/net") // the first thread may be elsewhere
	if err != nil {
		return Namespace{}, err
	}
	named, _ := filepath.Glob(namedDir + "/*") // the pattern is valid
	processes, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	seen := map[uint64]struct{}{home: {}}
	var found Namespace
	for _, path := range slices.Concat(named, processes) {
		id, err := inode(path)
		if _, known := seen[id]; err != nil || known {
			continue
		}
		if len(seen) > maxNamespaces {
			break
		}
		seen[id] = struct{}{}
		n, err := Open(path)
		if err != nil {
			continue // it has just ended
		}
		if !slices.Contains(n.addresses(), addr) {
			n.Close()
			continue
		}
		n.name = strings.TrimPrefix(path, namedDir+"/")
		if !found.Node() {
			defer found.Close()
			defer n.Close()
			return Namespace{}, fmt.Errorf("the network namespaces %s and %s both have the address %s", found.name, n.name, addr)
		}
		found = n
	}
	if !found.Node() {
		return found, nil
	}
	return Namespace{}, fmt.Errorf("none of the %d network namespaces that this proxy can see has the address %s", len(seen)-1, addr)
}

func inode(path string) (uint64, error) {
	var s unix.Stat_t
	err := unix.Stat(path, &s)
	return s.Ino, err
}

// Address returns an address of a namespace by which others reach it; invalid if it has none.
func (n Namespace) Address(f model.Family) netip.Addr {
	for _, ip := range n.addresses() {
		if model.FamilyOf(ip) == f && ip.IsGlobalUnicast() {
			return ip
		}
	}
	return netip.Addr{}
}

func (n Namespace) addresses() (out []netip.Addr) {
	var all []net.Addr
	if err := n.do(func() (err error) { all, err = net.InterfaceAddrs(); return err }); err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}
