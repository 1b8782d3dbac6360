package instancelock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// socketNames is how many names the seat can have. Any process of the network namespace
// can take one of them, without rights. So only a holder counts that is root or our
// own user, and whoever finds a name taken by somebody else uses the next.
const socketNames = 8

// socketAddr is an abstract socket address: it belongs to the network namespace, as
// the rules do, and the kernel gives it back the moment its holder dies.
func socketAddr(i int) *net.UnixAddr {
	name := "@sluice/kube-proxy"
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i)
	}
	return &net.UnixAddr{Name: name, Net: "unix"}
}

const (
	// retryEvery is how often a proxy that waits looks whether the seat is free.
	retryEvery = 250 * time.Millisecond
	// maxTries is how often it looks before it believes that strangers have all
	// names: a proxy that just starts does not answer yet.
	maxTries = 8
	// remindEvery is how often it says that it still waits.
	remindEvery = time.Minute
)

// Holder is the process of another proxy, which has the seat. It is 0 for one that
// is in another PID namespace, as those of other pods mostly are: such a process
// cannot be named here.
type Holder int

func (h Holder) String() string {
	if h == 0 {
		return "another kube-proxy (in a container of its own: its pid is not known here)"
	}
	return fmt.Sprintf("another kube-proxy (pid %d)", int(h))
}

// Lock is the right to program this node. One process has it at a time: two
// would undo each other's work for ever.
type Lock struct{ listener *net.UnixListener }

// Acquire waits until no other proxy programs this node, for as long as that takes:
// two would be worse than none. It says so in the log while it waits, and tells
// waits, each time that it waits for another process. Strangers that take all names
// do not keep it from working.
func Acquire(ctx context.Context, logger logr.Logger, c clock.Clock, waits func(Holder)) (*Lock, error) {
	wait, crowded := &waitLog{logger: logger, clock: c, waits: waits}, 0
	for {
		seat, holder, err := tryAcquire()
		switch {
		case err != nil:
			return nil, fmt.Errorf("make sure that no other proxy programs this node: %w", err)
		case seat != nil:
			go seat.answer()
			return seat, nil
		case holder != nil:
			wait.tell(*holder)
		default:
			if crowded++; crowded == maxTries {
				logger.Error(nil, "Other programs hold the sockets by which proxies find out about each other: going on without",
					"socket", socketAddr(0).Name, "remedy", "see who it is: ss -xlp | grep sluice")
				return &Lock{}, nil
			}
		}
		select {
		case <-c.After(retryEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// waitLog tells of the wait for another proxy.
type waitLog struct {
	logger logr.Logger
	clock  clock.Clock
	waits  func(Holder)

	began, reminded time.Time // zero before there was a holder
	holder          Holder
}

// tell says once that there is a holder, and again from time to time.
func (w *waitLog) tell(holder Holder) {
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

// tryAcquire takes the seat if it is free. Otherwise it names the process of the proxy
// that has it, nil if there is none: strangers have all names.
func tryAcquire() (seat *Lock, holder *Holder, err error) {
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
		// Of two that started at the same moment, the lower name has it.
		for lower := range i {
			if holder := proxyAt(lower); holder != nil {
				return nil, holder, listener.Close()
			}
		}
		return &Lock{listener}, nil, nil
	}
	return nil, nil, nil
}

// answer lets those who wait find out who has the seat: that is in the
// credentials of the connection, nothing is said.
func (s *Lock) answer() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// Release gives the seat up.
func (s *Lock) Release() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// proxyAt is the process that has a name of the seat, nil if none has it or a
// stranger does.
func proxyAt(i int) (holder *Holder) {
	conn, err := net.DialUnix("unix", nil, socketAddr(i))
	if err != nil {
		return nil
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid()) {
			pid := Holder(cred.Pid)
			holder = &pid
		}
	})
	return holder
}
