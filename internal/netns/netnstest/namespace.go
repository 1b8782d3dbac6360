package netnstest

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	vishvananda "github.com/vishvananda/netns"

	"sluice/internal/netns"
)

// Namespace is a network namespace of a test's own.
type Namespace struct{ handle vishvananda.NsHandle }

// New makes an empty namespace, which is there until the test ends. The test
// stays where it is.
func New(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{}
	done := make(chan error)
	go func() {
		// The thread is not unlocked: it ends with the goroutine, and nobody
		// else gets to run in its namespace.
		runtime.LockOSThread()
		var err error
		n.handle, err = vishvananda.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("make a network namespace (this needs root): %v", err)
	}
	t.Cleanup(func() { n.handle.Close() })
	return n
}

// Enter moves the test, and the programs that it runs, into an empty namespace
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

// FD is an open file descriptor of the namespace.
func (n *Namespace) FD() int { return int(n.handle) }

// Do calls f in the namespace. Goroutines that f starts are not in it.
func (n *Namespace) Do(f func() error) error { return netns.Do(n.FD(), f) }

// Run runs a program in the namespace and returns what it says. The test ends if
// the program fails.
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

// Run runs a program in the namespace that the test entered, and returns what it
// says. The test ends if the program fails.
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
