// Package netnstest provides network namespaces that are removed when a test
// ends. It needs root.
package netnstest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	vishvananda "github.com/vishvananda/netns"

	"sluice/internal/kernel/netns"
)

// Namespace is a network namespace that belongs to a test.
type Namespace struct{ handle vishvananda.NsHandle }

// New returns a new namespace, which exists until the test ends. The test stays
// in its own.
func New(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{}
	if err := n.create(); err != nil {
		t.Fatalf("make a network namespace (this needs root): %v", err)
	}
	t.Cleanup(func() { n.handle.Close() })
	return n
}

func (n *Namespace) create() error {
	done := make(chan error)
	go func() {
		// The thread stays locked: it ends with the goroutine, so that no other
		// goroutine runs in its namespace.
		runtime.LockOSThread()
		thread, err := os.Readlink("/proc/thread-self")
		switch {
		case err != nil:
		case strings.HasSuffix(thread, fmt.Sprint("/", os.Getpid())):
			// The first thread never ends, and would be what others see of the process.
			defer runtime.UnlockOSThread()
			err = n.create()
		default:
			n.handle, err = vishvananda.New()
		}
		done <- err
	}()
	return <-done
}

// Enter moves the test, and the commands that it runs, into a new namespace
// until it ends. Other goroutines stay where they are.
func Enter(t testing.TB) *Namespace {
	t.Helper()
	n := New(t)
	runtime.LockOSThread()
	home, err := vishvananda.Get()
	if err != nil {
		t.Fatalf("find the network namespace: %v", err)
	}
	if err := vishvananda.Set(n.handle); err != nil {
		t.Fatalf("enter a network namespace: %v", err)
	}
	t.Cleanup(func() {
		defer home.Close()
		if err := vishvananda.Set(home); err != nil {
			t.Errorf("return to the first network namespace: %v", err)
			return // the thread stays locked and ends with the test
		}
		runtime.UnlockOSThread()
	})
	return n
}

// FD returns an open file descriptor of the namespace.
func (n *Namespace) FD() int { return int(n.handle) }

// Do calls f in the namespace. Goroutines that f starts are not in it.
func (n *Namespace) Do(f func() error) error { return netns.Do(n.FD(), f) }

// Run runs a command in the namespace and returns its output. The test fails if
// the command does.
func (n *Namespace) Run(t testing.TB, input, program string, args ...string) string {
	t.Helper()
	var out string
	err := n.Do(func() (err error) {
		out, err = output(input, program, args)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Run runs a command in the namespace that the test entered, and returns its
// output. The test fails if the command does.
func Run(t testing.TB, input, program string, args ...string) string {
	t.Helper()
	out, err := output(input, program, args)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func output(input, program string, args []string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(args, " "), err, out, complaint.Bytes())
	}
	return string(out), err
}
