package netns_test

import (
	"errors"
	"os"
	"sync"
	"testing"

	"sluice/internal/kernel/netns"
	"sluice/internal/kernel/netns/netnstest"
)

// here names the network namespace of the calling goroutine.
func here() (name string, err error) { return os.Readlink("/proc/thread-self/ns/net") }

func TestDo(t *testing.T) {
	home, err := here()
	if err != nil {
		t.Fatal(err)
	}
	other := netnstest.New(t)
	tests := []struct {
		name string
		in   int
		home bool
	}{
		{"another namespace", other.FD(), false},
		{"0 for the caller's", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var name string
			if err := netns.Do(tt.in, func() (err error) { name, err = here(); return err }); err != nil {
				t.Fatal(err)
			}
			if (name == home) != tt.home {
				t.Errorf("it ran in %s, and the test in %s", name, home)
			}
			if after, err := here(); err != nil || after != home {
				t.Errorf("the test is in %s afterwards, %v; want %s", after, err, home)
			}
		})
	}
}

func TestDoReturnsErrors(t *testing.T) {
	wrong := errors.New("wrong")
	if err := netnstest.New(t).Do(func() error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("it returned %v", err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	called := false
	if err := netns.Do(int(file.Fd()), func() error { called = true; return nil }); err == nil || called {
		t.Errorf("what is no namespace was entered: %v", err)
	}
}

// What the process as a whole is asked for, such as /proc/self and /proc/net, stays about the
// namespace that it began in, whichever threads were somewhere else.
func TestDoLeavesTheProcessWhereItIs(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	other := netnstest.New(t)
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			if err := other.Do(func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if after, err := os.Readlink("/proc/self/ns/net"); err != nil || after != before {
		t.Errorf("the process is in %s afterwards, %v; want %s", after, err, before)
	}
}
