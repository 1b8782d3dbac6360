package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout allows for two lost packets.
const dialTimeout = 5 * time.Second

// tcpFront accepts connections.
type tcpFront struct {
	*Relay
	listener *net.TCPListener
	socket   syscall.RawConn
	muted    bool
	closed   chan struct{}
}

func (r *Relay) openTCP() (front, error) {
	listener, err := r.listenConfig().Listen(r.lifetime, r.network("tcp"), r.Address.String())
	if err != nil {
		return nil, err
	}
	f := &tcpFront{
		Relay: r, listener: listener.(*net.TCPListener), muted: r.pool.empty(), closed: make(chan struct{}),
	}
	if f.socket, err = f.listener.SyscallConn(); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	r.running.Go(f.accept)
	return f, nil
}

// follow makes the port unresponsive while the pool is empty. Established
// connections are left alone.
func (f *tcpFront) follow() error {
	silent := f.pool.empty()
	if silent == f.muted {
		return nil
	}
	act := unmute
	if silent {
		act = mute
	}
	if err := control(f.socket, act); err != nil {
		return fmt.Errorf("set the socket filter of %v: %w", f.Address, err)
	}
	f.muted = silent
	return nil
}

// mute makes the kernel drop everything that arrives for a socket, by a BPF
// filter that accepts no byte.
func mute(fd int) error {
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
}

func unmute(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}

func (f *tcpFront) close() {
	close(f.closed)
	_ = f.listener.Close() // the address is released even if it fails
}

// accept serves connections until the front is closed.
func (f *tcpFront) accept() {
	backoff := listenBackoff{relay: f.Relay}
	for {
		client, err := f.listener.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			backoff.wait(err, f.closed)
			continue
		}
		backoff.reset()
		if !f.takeSlot() {
			reset(client)
			return
		}
		f.running.Go(func() {
			defer f.freeSlot()
			f.serve(client)
		})
	}
}

func (f *tcpFront) takeSlot() bool {
	if f.Slots == nil {
		return true
	}
	select {
	case f.Slots <- struct{}{}:
		return true
	case <-f.closed:
		return false
	}
}

func (r *Relay) freeSlot() {
	if r.Slots != nil {
		<-r.Slots
	}
}

// serve forwards one connection until it ends.
func (r *Relay) serve(client *net.TCPConn) {
	s, err := r.dial(client)
	if err != nil {
		r.Logger.V(4).Info("No endpoint took a connection", "address", r.Address.String(), "err", err.Error())
		reset(client)
		r.Refused()
		return
	}
	r.Accepted()
	if r.ResetRemoved {
		r.streams.add(s)
		defer r.streams.remove(s)
		if r.gone(s.to) { // removed before it was added
			s.reset()
		}
	}
	// A reader must not mistake truncation for the end of the stream.
	stop := context.AfterFunc(r.lifetime, s.reset)
	defer stop()
	join(s.client, s.endpoint)
}

var errNoEndpoint = errors.New("there is no endpoint")

// dial connects a client to an endpoint.
func (r *Relay) dial(client *net.TCPConn) (*stream, error) {
	who := client.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	dialer := net.Dialer{Timeout: dialTimeout}
	problem := errNoEndpoint
	for _, endpoint := range r.pool.candidates(who) {
		conn, err := dialer.DialContext(r.lifetime, "tcp", endpoint.String())
		if err == nil {
			r.pool.chose(who, endpoint)
			return &stream{client, conn.(*net.TCPConn), endpoint}, nil
		}
		problem = errors.Join(problem, err)
	}
	return nil, problem
}

// join copies in both directions until both have ended, and closes both
// connections.
func join(a, b *net.TCPConn) {
	var other sync.WaitGroup
	other.Go(func() { transfer(a, b) })
	transfer(b, a)
	other.Wait()
	_ = a.Close() // both directions have ended
	_ = b.Close()
}

// transfer copies until EOF, which it forwards. Between two TCP connections
// io.Copy uses splice(2).
func transfer(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		reset(to)
		reset(from)
		return
	}
	_ = to.CloseWrite() // it may be closed already
}

// reset closes a connection with a RST.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
