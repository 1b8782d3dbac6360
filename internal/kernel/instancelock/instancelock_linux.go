// Package instancelock makes sure that one proxy at a time programs a network
// namespace, or one of each name.
//
// The lock is an NFLOG group, which only the right to program can take. Sockets beside it tell
// proxies of each other; whoever keeps these from them keeps them from a name in a message.
//
// Where groups are not available, the sockets are the lock. Any process of root can take it then.
package instancelock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

const (
	// retryEvery is how often a waiting proxy tries to get the lock.
	retryEvery = 250 * time.Millisecond
	// maxTries is how often it tries, if sockets are the lock, before it concludes that
	// unrelated processes have all names: a proxy that is just starting does not answer
	// yet.
	maxTries = 8
	// remindEvery is how often it logs that it is still waiting.
	remindEvery = time.Minute
)

// Holder is the pid of another proxy that holds the lock. It is 0 if that is not known, as
// of one in another PID namespace, where those of other pods mostly are.
type Holder int

func (h Holder) String() string {
	if h == 0 {
		return "another kube-proxy (its pid is not known here: it may be in another container)"
	}
	return fmt.Sprintf("another kube-proxy (pid %d)", int(h))
}

// Name is what a proxy is called that serves a node beside others, and empty for one that
// serves it alone. Each has a lock of its own.
type Name string

// Lock is the right to program this network namespace. One process has it at a
// time: two would undo each other's work forever.
type Lock struct {
	group    *groupSocket      // bound; nil if groups are not available
	listener *net.UnixListener // nil if unrelated processes have all names
	clock    clock.PassiveClock

	mu          sync.Mutex
	waiter      Holder // who asked last for the lock
	first, last time.Time
}

// Acquire waits, indefinitely, until no other proxy programs this network
// namespace. While it waits it logs that, and calls waits for each process that
// it waits for.
func (n Name) Acquire(ctx context.Context, logger logr.Logger, c clock.Clock, waits func(Holder)) (*Lock, error) {
	wait := &waitLog{logger: logger, clock: c, waits: waits}
	attempt, err := n.newAttempt(logger)
	if err != nil {
		return nil, fmt.Errorf("make sure that no other proxy programs this node: %w", err)
	}
	for {
		lock, holder, err := attempt.try()
		switch {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("make sure that no other proxy programs this node: %w", err), attempt.giveUp())
		case lock != nil:
			lock.clock = c
			if lock.listener != nil {
				go lock.answer()
			}
			return lock, nil
		case holder != nil:
			wait.report(*holder)
		}
		select {
		case <-c.After(retryEvery):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), attempt.giveUp())
		}
	}
}

// attempt is the attempt to get the lock.
type attempt struct {
	name    Name
	logger  logr.Logger
	group   *groupSocket // not bound yet; nil if groups are not available
	crowded int          // how often unrelated processes had all names
}

func (n Name) newAttempt(logger logr.Logger) (*attempt, error) {
	group, err := n.openGroup()
	if errors.Is(err, errNoGroups) {
		logger.V(1).Info("The instance lock is a socket only", "reason", err.Error())
		return &attempt{name: n, logger: logger}, nil
	}
	return &attempt{name: n, logger: logger, group: &group}, err
}

func (a *attempt) giveUp() error {
	if a.group == nil {
		return nil
	}
	return a.group.Close()
}

// try takes the lock if it is free. Otherwise it returns the process of the proxy that holds
// it, nil if there is none because unrelated processes have all names.
func (a *attempt) try() (*Lock, *Holder, error) {
	if a.group == nil {
		return a.trySockets()
	}
	bound, err := a.group.bind()
	if err != nil {
		return nil, nil, err
	}
	if !bound {
		holder := Holder(0)
		if who := a.name.proxyAtAny(); who != nil {
			holder = *who
		}
		return nil, &holder, nil
	}
	// A command that this process runs may write for a moment after its death.
	if err := a.group.Share(); err != nil {
		return nil, nil, err
	}
	listener, _, err := a.name.listen()
	if err != nil {
		return nil, nil, err
	}
	if listener == nil {
		a.logger.Info("Other processes hold all sockets of the instance lock: another proxy that waits will not be noticed",
			"socket", a.name.socketAddr(0).Name, "remedy", crowdedRemedy)
	}
	return &Lock{group: a.group, listener: listener}, nil, nil
}

// trySockets does the same where the sockets are the lock.
func (a *attempt) trySockets() (*Lock, *Holder, error) {
	if holder := a.name.proxyAtAny(); holder != nil {
		return nil, holder, nil
	}
	listener, name, err := a.name.listen()
	if err != nil {
		return nil, nil, err
	}
	if listener != nil {
		// Of two that started at the same time, the lower name wins.
		for lower := range name {
			if holder := a.name.proxyAt(lower); holder != nil {
				return nil, holder, listener.Close()
			}
		}
		return &Lock{listener: listener}, nil, nil
	}
	if a.crowded++; a.crowded < maxTries {
		return nil, nil, nil
	}
	a.logger.Error(nil, "Other processes hold all sockets of the instance lock: going on without it",
		"socket", a.name.socketAddr(0).Name, "remedy", crowdedRemedy)
	return &Lock{}, nil, nil
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
	if holder == 0 && !w.began.IsZero() {
		holder = w.holder // it was asked in vain this time
	}
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

const (
	// waitsAfter is how long another proxy waits before it counts as a second one, and not as
	// the next one while this one ends.
	waitsAfter = 10 * time.Second
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
	waits = l.last.Sub(l.first) >= waitsAfter && l.clock.Now().Sub(l.last) <= forgotten
	return l.waiter, l.first, waits
}

// Release releases the lock.
func (l *Lock) Release() error {
	var errs [2]error
	if l.listener != nil {
		errs[0] = l.listener.Close()
	}
	if l.group != nil {
		errs[1] = l.group.Close()
	}
	return errors.Join(errs[:]...)
}

// Held reports whether a proxy holds the lock.
func (n Name) Held() bool {
	group, err := n.openGroup()
	if err != nil {
		return n.proxyAtAny() != nil
	}
	defer group.Close()
	return group.taken()
}
