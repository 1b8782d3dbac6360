//go:build !linux

// Package instancelock makes sure that one proxy at a time programs a network
// namespace. Where a proxy programs nothing, there is nothing to make sure of.
package instancelock

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Holder is another proxy that holds the lock, which never happens here.
type Holder int

func (Holder) String() string { return "another kube-proxy" }

// Name is what a proxy is called that serves a node beside others.
type Name string

// Lock is the right to serve, which every process has.
type Lock struct{}

// Acquire returns the lock.
func (Name) Acquire(context.Context, logr.Logger, clock.Clock, func(Holder)) (*Lock, error) {
	return &Lock{}, nil
}

// Held returns false.
func (Name) Held() bool { return false }

// Waiter returns none.
func (*Lock) Waiter() (Holder, time.Time, bool) { return 0, time.Time{}, false }

// Release does nothing.
func (*Lock) Release() error { return nil }
