//go:build linux

package iptables

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// TestMain gives the tests a lock of their own: the host's is shared by all network
// namespaces.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "iptables-test")
	if err != nil {
		panic(err)
	}
	os.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "lock"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Legacy does not name the line that the kernel refuses: the frontends are found by
// bisection.
func TestRefusalsWithoutLineAreBisected(t *testing.T) {
	testkit.NotInGuest(t, "its kernel is a fake")
	ctx := context.Background()
	for _, mute := range []bool{false, true} {
		h := newFakeDriver()
		h.mute = mute
		h.refuse = func(line string) string {
			if strings.Contains(line, "10.96.0.17/32") || strings.Contains(line, "10.96.0.99/32") {
				return "not this one"
			}
			return ""
		}
		d := h.dataplane(t)
		r := d.Reconcile(ctx, cluster(200, 2))
		want := []plan.Key{key("10.96.0.17:80", model.TCP), key("10.96.0.99:80", model.TCP)}
		if got := slices.SortedFunc(maps.Keys(r.Failed), plan.Key.Compare); r.Err != nil || !slices.Equal(got, want) {
			t.Errorf("mute %v: failed %v, %v", mute, r.Err, r.Failed)
		}
		good := newFakeDriver()
		desired := cluster(200, 2)
		for _, k := range want {
			delete(desired.Frontends, k)
		}
		ok(t, good.dataplane(t).Reconcile(ctx, desired))
		if good.dump() != h.dump() {
			t.Errorf("mute %v: what was not refused is not programmed as it would be alone", mute)
		}
	}
}

// A refusal that remains without any frontend is not due to one.
func TestRefusedFixedChainsFailAll(t *testing.T) {
	h := newFakeDriver()
	h.refuse = func(line string) string {
		if strings.Contains(line, "MASQUERADE") {
			return "no such target"
		}
		return ""
	}
	d := h.dataplane(t)
	if r := d.Reconcile(context.Background(), cluster(3, 2)); r.Err == nil || !strings.Contains(r.Err.Error(), "no such target") {
		t.Errorf("got %v, %v", r.Err, r.Failed)
	}
	if r := d.Apply(context.Background(), &plan.Change{}); !errors.Is(r.Err, dataplane.ErrUnknown) {
		t.Errorf("Apply after that: %v", r.Err)
	}
	h.refuse = nil
	ok(t, d.Reconcile(context.Background(), cluster(3, 2)))
}

func TestHeldLockIsNamed(t *testing.T) {
	ctx := context.Background()
	d := newKernel(t, iptables.Legacy).dataplane()
	lock, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := d.prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	r := d.Reconcile(ctx, variety())
	if !errors.Is(r.Err, iptables.ErrLocked) || !strings.Contains(r.Err.Error(), "xtables.lock") {
		t.Errorf("while the lock is held: %v", r.Err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	ok(t, d.Reconcile(ctx, variety()))
}
