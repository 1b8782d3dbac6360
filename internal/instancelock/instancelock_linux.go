// Package instancelock makes sure that one proxy at a time programs a network
// namespace.
package instancelock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// socketNames is the number of socket names that can hold the lock. Any
// unprivileged process in the network namespace can bind them, so only a holder
// that is root or our own user counts, and a name bound by another process is
// skipped.
const socketNames = 8

// socketAddr returns an abstract socket address: it belongs to the network
// namespace, as the rules do, and the kernel releases it when its holder dies.
func socketAddr(i int) *net.UnixAddr {
	name := "@sluice/kube-proxy"
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i)
	}
	return &net.UnixAddr{Name: name, Net: "unix"}
}

const (
	// retryEvery is how often a waiting proxy tries to get the lock.
	retryEvery = 250 * time.Millisecond
	// maxTries is how often it tries before it concludes that unrelated
	// processes have all names: a proxy that is just starting does not answer
	// yet.
	maxTries = 8
	// remindEvery is how often it logs that it is still waiting.
	remindEvery = time.Minute
)

// Holder is the pid of another proxy that holds the lock. It is 0 for one in
// another PID namespace, as those of other pods mostly are: its pid is not
// known here.
type Holder int

func (h Holder) String() string {
	if h == 0 {
		return "another kube-proxy (in a container of its own: its pid is not known here)"
	}
	return fmt.Sprintf("another kube-proxy (pid %d)", int(h))
}

// Lock is the right to program this network namespace. One process has it at a
// time: two would undo each other's work forever.
type Lock struct {
	listener *net.UnixListener
	clock    clock.PassiveClock

	mu          sync.Mutex
	waiter      Holder // who asked last for the lock
	first, last time.Time
}

// Acquire waits, indefinitely, until no other proxy programs this network
// namespace. While it waits it logs that, and calls waits for each process that
// it waits for. Unrelated processes that bind all names do not prevent it.
func Acquire(ctx context.Context, logger logr.Logger, c clock.Clock, waits func(Holder)) (*Lock, error) {
	wait, crowded := &waitLog{logger: logger, clock: c, waits: waits}, 0
	for {
		lock, holder, err := tryAcquire()
		switch {
		case err != nil:
			return nil, fmt.Errorf("make sure that no other proxy programs this node: %w", err)
		case lock != nil:
			lock.clock = c
			go lock.answer()
			return lock, nil
		case holder != nil:
			wait.report(*holder)
		default:
			if crowded++; crowded == maxTries {
				logger.Error(nil, "Other processes hold all sockets of the instance lock: going on without it",
					"socket", socketAddr(0).Name, "remedy", "see who it is: ss -xlp | grep sluice")
				return &Lock{clock: c}, nil
			}
		}
		select {
		case <-c.After(retryEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// waitLog logs the wait for another proxy.
type waitLog struct {
	logger logr.Logger
	clock  clock.Clock
	waits  func(Holder)

	began, reminded time.Time // zero before there was a holder
	holder          Holder
}

// report logs once that there is a holder, and again from time to time.
func (w *waitLog) report(holder Holder) {
	now := w.clock.Now()
	switch {
	case w.began.IsZero() || holder != w.holder:
		w.logger.Info("Another proxy programs this node: waiting until it ends", "pid", int(holder))
		w.waits(holder)
		if w.began.IsZero() {
			w.began = now
		}
	case now.Sub(w.reminded) >= remindEvery:
		w.logger.Info("Another proxy still programs this node: this one does nothing", "pid", int(holder), "waiting", now.Sub(w.began).Round(time.Second),
			"remedy", "end one of the two: only one kube-proxy can serve a node")
	default:
		return
	}
	w.holder, w.reminded = holder, now
}

// tryAcquire takes the lock if it is free. Otherwise it returns the process of
// the proxy that holds it, nil if there is none because unrelated processes
// have all names.
func tryAcquire() (lock *Lock, holder *Holder, err error) {
	for i := range socketNames {
		if holder := proxyAt(i); holder != nil {
			return nil, holder, nil
		}
	}
	for i := range socketNames {
		listener, err := net.ListenUnix("unix", socketAddr(i))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		// Of two that started at the same time, the lower name wins.
		for lower := range i {
			if holder := proxyAt(lower); holder != nil {
				return nil, holder, listener.Close()
			}
		}
		return &Lock{listener: listener}, nil, nil
	}
	return nil, nil, nil
}

// answer accepts connections, so that waiting processes can read the holder's
// credentials. Nothing is sent.
func (l *Lock) answer() {
	for {
		conn, err := l.listener.AcceptUnix()
		if err != nil {
			return
		}
		if peer := proxyOf(conn); peer != nil {
			l.asked(*peer)
		}
		conn.Close()
	}
}

const (
	// patience is how long another proxy waits before it counts as a second one, and not as
	// the next one while this one ends.
	patience = 10 * time.Second
	// forgotten is how long after its last attempt it no longer waits.
	forgotten = 5 * time.Second
)

// asked notes that another proxy tries to get the lock, as it does until it has it.
func (l *Lock) asked(by Holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if by != l.waiter || now.Sub(l.last) > forgotten {
		l.waiter, l.first = by, now
	}
	l.last = now
}

// Waiter returns another proxy that waits for the lock, and since when.
func (l *Lock) Waiter() (who Holder, since time.Time, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waits = l.last.Sub(l.first) >= patience && l.clock.Now().Sub(l.last) <= forgotten
	return l.waiter, l.first, waits
}

// Release releases the lock.
func (l *Lock) Release() error {
	if l.listener == nil {
		return nil
	}
	return l.listener.Close()
}

// Held reports whether a proxy holds the lock.
func Held() bool {
	for i := range socketNames {
		if proxyAt(i) != nil {
			return true
		}
	}
	return false
}

// proxyAt returns the process that holds a name, nil if there is none or it is
// an unrelated one.
func proxyAt(i int) (holder *Holder) {
	conn, err := net.DialUnix("unix", nil, socketAddr(i))
	if err != nil {
		return nil
	}
	defer conn.Close()
	return proxyOf(conn)
}

// proxyOf returns the process at the other end of a connection, nil if it is an unrelated one.
func proxyOf(conn *net.UnixConn) (peer *Holder) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid()) {
			pid := Holder(cred.Pid)
			peer = &pid
		}
	})
	return peer
}
