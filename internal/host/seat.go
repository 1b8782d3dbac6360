package host

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

// seats is how many names the seat can have. Any process of the network namespace
// can take one of them, without rights. So only a holder counts that is root or our
// own user, and whoever finds a name taken by somebody else uses the next.
const seats = 8

// seatName is an abstract socket address: it belongs to the network namespace, as
// the rules do, and the kernel gives it back the moment its holder dies.
func seatName(i int) *net.UnixAddr {
	name := "@sluice/kube-proxy"
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i)
	}
	return &net.UnixAddr{Name: name, Net: "unix"}
}

const (
	// seatRetry is how often a proxy that waits looks whether the seat is free.
	seatRetry = 250 * time.Millisecond
	// seatTries is how often it looks before it believes that strangers have all
	// names: a proxy that just starts does not answer yet.
	seatTries = 8
)

// Seat is the right to program this node. One process has it at a time: two
// would undo each other's work for ever.
type Seat struct{ listener *net.UnixListener }

// TakeSeat waits until no other proxy programs this node, and says so while it
// does. Strangers that take all names do not keep it from working.
func TakeSeat(ctx context.Context, logger logr.Logger, c clock.Clock) (*Seat, error) {
	told, crowded := 0, 0
	for {
		seat, holder, err := trySeat()
		switch {
		case err != nil:
			return nil, fmt.Errorf("make sure that no other proxy programs this node: %w", err)
		case seat != nil:
			go seat.answer()
			return seat, nil
		case holder == 0:
			if crowded++; crowded == seatTries {
				logger.Error(nil, "Other programs hold the sockets by which proxies find out about each other: going on without",
					"socket", seatName(0).Name, "remedy", "see who it is: ss -xlp | grep sluice")
				return &Seat{}, nil
			}
		case holder != told:
			told = holder
			logger.Info("Another proxy programs this node: waiting until it ends", "pid", holder)
		}
		select {
		case <-c.After(seatRetry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// trySeat takes the seat if it is free. Otherwise it names the process of the proxy
// that has it, 0 if there is none: strangers have all names.
func trySeat() (seat *Seat, holder int, err error) {
	for i := range seats {
		if pid := proxyAt(i); pid != 0 {
			return nil, pid, nil
		}
	}
	for i := range seats {
		listener, err := net.ListenUnix("unix", seatName(i))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		// Of two that started at the same moment, the lower name has it.
		for lower := range i {
			if pid := proxyAt(lower); pid != 0 {
				return nil, pid, listener.Close()
			}
		}
		return &Seat{listener}, 0, nil
	}
	return nil, 0, nil
}

// answer lets those who wait find out who has the seat: that is in the
// credentials of the connection, nothing is said.
func (s *Seat) answer() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// Leave gives the seat up.
func (s *Seat) Leave() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// proxyAt is the process that has a name of the seat, 0 if none has it or a
// stranger does.
func proxyAt(i int) int {
	conn, err := net.DialUnix("unix", nil, seatName(i))
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid()) {
			pid = int(cred.Pid)
		}
	})
	return pid
}
