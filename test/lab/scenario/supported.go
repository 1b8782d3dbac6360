//go:build linux

package scenario

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netns"

	"sluice/internal/dataplane"
)

// Supported returns why this machine's kernel cannot run the mode, nil if it can. Few
// machines have IPVS; the guests of package vm do.
func (m Mode) Supported(ctx context.Context) error {
	namespace, err := newNamespace()
	if err != nil {
		return err
	}
	defer namespace.Close()
	d, err := m.Open(ctx, dataplane.Options{Logger: logr.Discard(), NetNS: int(namespace), Variant: m.Variant})
	switch {
	case err == nil:
		return d.Close()
	case errors.Is(err, dataplane.ErrUnsupported):
		return err
	}
	return nil // tests show what else is wrong
}

// newNamespace makes a network namespace that exists until it is closed.
func newNamespace() (n netns.NsHandle, err error) {
	done := make(chan struct{})
	go func() {
		// The thread stays locked: it ends with the goroutine, so that no other
		// goroutine runs in its namespace.
		runtime.LockOSThread()
		n, err = netns.New()
		close(done)
	}()
	<-done
	return n, err
}

// SupportedModeNames lists those of ModeNames that this machine's kernel can run.
func SupportedModeNames(ctx context.Context) []string {
	return slices.DeleteFunc(ModeNames(), func(name string) bool { return Modes[name].Supported(ctx) != nil })
}
