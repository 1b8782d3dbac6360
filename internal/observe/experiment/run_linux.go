package experiment

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/observe/conntrack"
)

const (
	// step is how often it is looked whether the caller still waits.
	step = 50 * time.Millisecond
	// settle is how long the kernel's notification of a refused connection is waited for.
	settle = 200 * time.Millisecond
)

// errSilent is the end of an attempt to which nothing came back.
var errSilent = errors.New("nothing came back")

// Run makes an attempt.
func Run(ctx context.Context, a Attempt) *Result { return run(ctx, a, 0) }

// run makes an attempt on a node with another network namespace, unless that is 0.
func run(ctx context.Context, a Attempt, node int) *Result {
	r := &Result{From: a.From.String(), To: a.To, Protocol: a.Protocol.String()}
	if a.Protocol == model.SCTP {
		r.Outcome, r.Error = Untried, "the proxy opens no SCTP connections"
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	ended := watchEnds(ctx, node)
	begin := time.Now()
	err := a.From.do(func() error { return r.connect(ctx, a) })
	r.Seconds = time.Since(begin).Seconds()
	switch {
	case err == nil:
		r.Outcome = Answered
	case errors.Is(err, errSilent):
		r.Outcome = Silent
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH) && r.Client.IsValid():
		r.Outcome, r.Error = Refused, err.Error()
	default:
		r.Outcome, r.Error = Untried, err.Error()
	}
	if c, found := ended.find(a.Protocol, r.Client, a.To); found {
		r.Endpoint, r.SeenAs = c.Endpoint, c.SeenAs
	}
	return r
}

// connect opens a connection and closes it as soon as it is answered. It sends an empty
// datagram, and waits for a reply, if the protocol has no connections. The client's address is
// known also if that fails.
func (r *Result) connect(ctx context.Context, a Attempt) error {
	domain, kind := unix.AF_INET, unix.SOCK_STREAM
	if a.To.Addr().Is6() {
		domain = unix.AF_INET6
	}
	if a.Protocol == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(a.To)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	r.Client = addrPort(local)
	if a.Protocol != model.UDP {
		return await(ctx, fd, unix.POLLOUT)
	}
	if err := unix.Send(fd, nil, 0); err != nil {
		return err
	}
	return await(ctx, fd, unix.POLLIN)
}

// await waits until something happened to a socket, and returns what if it is an error.
func await(ctx context.Context, fd int, event int16) error {
	polled := []unix.PollFd{{Fd: int32(fd), Events: event}}
	for ctx.Err() == nil {
		n, err := unix.Poll(polled, int(step.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR), err == nil && n == 0:
			continue
		case err != nil:
			return err
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if errors.Is(err, unix.ETIMEDOUT) {
			return errSilent
		}
		return err
	}
	return errSilent
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// maxEnds is how many connections are remembered that ended during the attempt.
const maxEnds = 10_000

// ends are the connections that ended without an answer since it was made: of one that is
// refused, nothing else is left.
type ends struct {
	node int // its network namespace
	mu   sync.Mutex
	all  map[netip.AddrPort]conntrack.Connection // by client
}

// watchEnds watches until ctx is done, beginning before it returns as far as that is possible.
func watchEnds(ctx context.Context, node int) *ends {
	e := &ends{node: node, all: map[netip.AddrPort]conntrack.Connection{}}
	ready := make(chan struct{})
	go func() {
		_ = conntrack.WatchUnreplied(ctx, node, func() { close(ready) }, func(c conntrack.Connection) { // without it, less is known
			e.mu.Lock()
			defer e.mu.Unlock()
			if len(e.all) < maxEnds {
				e.all[c.Client] = c
			}
		})
	}()
	select {
	case <-ready:
	case <-ctx.Done():
	case <-time.After(settle):
	}
	return e
}

// find returns the connection of a client, whether it is tracked still or has ended.
func (e *ends) find(p model.Protocol, client, to netip.AddrPort) (c conntrack.Connection, found bool) {
	if !client.IsValid() {
		return c, false
	}
	for until := time.Now().Add(settle); ; time.Sleep(settle / 20) {
		e.mu.Lock()
		c, found = e.all[client]
		e.mu.Unlock()
		if found {
			return c, c.Endpoint != to
		}
		c, found, err := conntrack.Find(e.node, p, client, to)
		if found || err != nil || time.Now().After(until) {
			return c, found && c.Endpoint != to
		}
	}
}
