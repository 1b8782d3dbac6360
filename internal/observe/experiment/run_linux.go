package experiment

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
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
func (u *Runner) Run(ctx context.Context, a Attempt) *Result { return u.run(ctx, a, 0) }

// run makes an attempt on a node with another network namespace, unless that is 0.
func (u *Runner) run(ctx context.Context, a Attempt, node int) *Result {
	r := &Result{From: a.From.String(), To: a.To, Protocol: a.Protocol.String(), relayed: a.Relayed}
	if a.Protocol == model.SCTP {
		r.Outcome, r.Error = Untried, "the proxy opens no SCTP connections"
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	ended := watchEnds(ctx, node)
	heard := u.listen()
	defer u.forget(heard)
	var fd int
	begin := time.Now()
	err := a.From.do(func() (err error) { fd, err = r.connect(a); return err })
	if err == nil {
		err = await(ctx, fd, answerOf(a.Protocol))
		if a.Relayed && a.Protocol == model.TCP && (err == nil || errors.Is(err, unix.ECONNRESET)) {
			err = r.relay(ctx, fd, heard, node, err)
		}
		_ = unix.Close(fd) // nothing was written
	}
	r.Seconds = time.Since(begin).Seconds()
	switch {
	case err == nil:
		r.Outcome = Answered
	case errors.Is(err, errSilent):
		r.Outcome = Silent
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH) && r.Client.IsValid():
		r.Outcome, r.Error = ConnectionRefused, err.Error()
	default:
		r.Outcome, r.Error = Untried, err.Error()
	}
	if a.Relayed {
		r.hear(heard, begin)
	} else if c, found := ended.find(a.Protocol, r.Client, a.To); found {
		r.Endpoint, r.SeenAs = c.Endpoint, c.SeenAs
	}
	return r
}

// connect begins to open a connection. It sends an empty datagram if the protocol has none. The
// client's address is known also if that fails.
func (r *Result) connect(a Attempt) (_ int, err error) {
	domain, kind := unix.AF_INET, unix.SOCK_STREAM
	if a.To.Addr().Is6() {
		domain = unix.AF_INET6
	}
	if a.Protocol == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd) // nothing was written
		}
	}()
	if err := unix.Connect(fd, sockaddr(a.To)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return 0, err
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	r.Client = addrPort(local)
	if a.Protocol == model.UDP {
		return fd, unix.Send(fd, nil, 0)
	}
	return fd, nil
}

// answerOf returns what happens to a socket when it is answered.
func answerOf(p model.Protocol) int16 {
	if p == model.UDP {
		return unix.POLLIN
	}
	return unix.POLLOUT
}

// relay waits for what becomes of a connection that the proxy has accepted: until it has reached
// an endpoint, the handshake says nothing. It may have ended by now.
func (r *Result) relay(ctx context.Context, fd int, heard *hearing, node int, ended error) error {
	heard.expect(r.Client)
	if c, found, err := conntrack.Find(node, model.TCP, r.Client, r.To); found && err == nil {
		heard.expect(c.SeenAs) // the kernel may have given it another port
	}
	for ended == nil && ctx.Err() == nil && !heard.accepted() {
		short, cancel := context.WithTimeout(ctx, step)
		ended = await(short, fd, unix.POLLIN)
		cancel()
		if ended == nil {
			return nil // an endpoint has something to say, or has said it
		}
		if errors.Is(ended, errSilent) {
			ended = nil
		}
	}
	last, found := heard.last()
	switch {
	case heard.accepted():
		return nil
	case ended == nil, found && last.Outcome == dataplane.Unanswered:
		return errSilent
	}
	return ended
}

// hear takes over what the proxy said of the endpoints that it tried.
func (r *Result) hear(heard *hearing, begin time.Time) {
	heard.expect(r.Client)
	last, found := heard.last()
	if !found {
		return
	}
	r.Endpoint = last.Endpoint
	if r.Outcome == Answered {
		r.Seconds = last.at.Sub(begin).Seconds()
	}
	if r.Outcome == Silent && last.Outcome == dataplane.Refused && last.Protocol == model.UDP { // clients are not told
		r.Outcome = ConnectionRefused
	}
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
