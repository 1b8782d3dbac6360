package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// seatName is an abstract socket address: it belongs to the network namespace,
// as the rules do, and the kernel gives it back the moment its holder dies.
const seatName = "@sluice/kube-proxy"

// seatRetry is how often a proxy that waits looks whether the seat is free.
const seatRetry = 250 * time.Millisecond

// Seat is the right to program this node. One process has it at a time: two
// would undo each other's work for ever.
type Seat struct{ listener *net.UnixListener }

// TakeSeat waits until no other proxy programs this node, and says so while it
// does.
func TakeSeat(ctx context.Context, logger logr.Logger, c clock.Clock) (*Seat, error) {
	told := false
	for {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: seatName, Net: "unix"})
		if err == nil {
			seat := &Seat{listener}
			go seat.answer()
			return seat, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("make sure that no other proxy programs this node: %w", err)
		}
		if !told {
			told = true
			logger.Info("Another proxy programs this node: waiting until it ends", "pid", seatHolder())
		}
		select {
		case <-c.After(seatRetry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
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
func (s *Seat) Leave() error { return s.listener.Close() }

// seatHolder is the process that has the seat, 0 if that cannot be told.
func seatHolder() int {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: seatName, Net: "unix"})
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
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
