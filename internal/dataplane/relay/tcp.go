package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/internal/base/socketerror"
	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// dialTimeouts is how long an endpoint is waited for, the first time and later ones.
// The next endpoint is tried then, or the same again if there is no other.
var dialTimeouts = [...]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// connectTimeout is how long that takes at most, and how long a connection waits for its turn.
const connectTimeout = 4 * time.Second

// tcpFront accepts connections.
type tcpFront struct {
	*server
	listener *net.TCPListener
	socket   syscall.RawConn
	muted    bool
	closed   chan struct{}
}

func (s *server) openTCP(silent bool) (front, error) {
	listener, err := s.listenConfig(silent).Listen(s.lifetime, s.network("tcp"), s.Address.String())
	if err != nil {
		return nil, err
	}
	f := &tcpFront{server: s, listener: listener.(*net.TCPListener), muted: silent, closed: make(chan struct{})}
	if f.socket, err = f.listener.SyscallConn(); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s.running.Go(f.accept)
	return f, nil
}

func (f *tcpFront) address() netip.AddrPort { return f.listener.Addr().(*net.TCPAddr).AddrPort() }

// answer makes the port responsive or not. Established connections are left alone.
func (f *tcpFront) answer(yes bool) error {
	if yes != f.muted {
		return nil
	}
	act := mute
	if yes {
		act = unmute
	}
	if err := control(f.socket, act); err != nil {
		return fmt.Errorf("set the socket filter of %v: %w", f.Address, err)
	}
	f.muted = !yes
	return nil
}

func control(socket syscall.RawConn, act func(fd int) error) error {
	var result error
	if err := socket.Control(func(fd uintptr) { result = act(int(fd)) }); err != nil {
		return err
	}
	return result
}

func (f *tcpFront) close() {
	close(f.closed)
	_ = f.listener.Close() // the address is released even if it fails
}

// accept serves connections until the front is closed.
func (f *tcpFront) accept() {
	backoff := listenBackoff{server: f.server}
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
		if r := f.admit(client); r != nil {
			f.running.Go(func() {
				defer f.Budget.give(r.share)
				f.serve(r)
			})
		}
	}
}

// request is an accepted connection that asks for an endpoint.
type request struct {
	conn *net.TCPConn
	from netip.AddrPort // the client
	pool *Pool
	origin
	share share
}

// admit finds the pool of a connection, and takes its share of the files. It resets the
// connection and returns nil if there is none.
func (s *server) admit(client *net.TCPConn) *request {
	pool := s.paths.findTCP(client)
	if pool == nil {
		reset(client)
		s.Refused(NoEndpoint)
		return nil
	}
	hops, ok := next(hopsOf(client))
	if !ok {
		s.refuseLoop(pool)
		reset(client)
		return nil
	}
	from := client.RemoteAddr().(*net.TCPAddr).AddrPort()
	who := from.Addr().Unmap()
	r := &request{client, netip.AddrPortFrom(who, from.Port()), pool, origin{who, hops}, share{who, pool.Balancer, filesOfConnection}}
	if e := s.Budget.take(r.share); e != nobody {
		s.refuseExcess(r.share, e)
		reset(client)
		return nil
	}
	s.Budget.reclaim()
	return r
}

// serve forwards one connection until it ends.
func (s *server) serve(r *request) {
	c, err := s.dial(r)
	if err != nil {
		s.Logger.V(4).Info("No endpoint took a connection", "address", s.Address.String(), "err", err.Error())
		reset(r.conn)
		if !errors.Is(err, errClientGone) {
			s.Refused(NoEndpoint)
		}
		return
	}
	s.Accepted()
	if !r.pool.begin(c, c.to) { // removed meanwhile
		c.lost(r.pool.silent())
	}
	defer r.pool.end(c)
	stop := context.AfterFunc(s.lifetime, c.reset)
	defer stop()
	join(c.client, c.endpoint)
}

// stream is the connection of a client and the one to its endpoint.
type stream struct {
	client, endpoint *net.TCPConn
	to               netip.AddrPort
	resetRemoved     bool
}

// lost resets the connection, unless the client would get no answer if it tried again.
func (c *stream) lost(silence bool) {
	if c.resetRemoved && !silence {
		c.reset()
	}
}

func (c *stream) reset() {
	reset(c.client)
	reset(c.endpoint)
}

var (
	errNoEndpoint = errors.New("there is no endpoint")
	errClientGone = errors.New("the client is gone")
)

// dial connects a client to an endpoint, when it is its turn. One that refuses is not tried
// again.
func (s *server) dial(r *request) (*stream, error) {
	ctx, cancel := context.WithTimeout(s.lifetime, connectTimeout)
	done, err := s.Budget.turn(ctx, r.client, r.pool.Balancer)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("too many connections of this client, or to this Service, are being opened: %w", err)
	}
	defer done()
	candidates := r.pool.candidates(r.client)
	problem := errNoEndpoint
	for _, timeout := range dialTimeouts {
		if len(candidates) == 0 {
			break
		}
		if over(r.conn) {
			return nil, errClientGone
		}
		endpoint := candidates[0]
		candidates = candidates[1:]
		if problem != errNoEndpoint {
			s.Retried()
		}
		ctx, cancel := context.WithTimeout(s.lifetime, timeout)
		begin := s.Clock.Now()
		conn, err := s.paths.dialTCP(ctx, r.origin, r.pool, endpoint)
		cancel()
		if outcome, known := outcomeOf(err); known && s.lifetime.Err() == nil {
			s.Tried(dataplane.Attempt{Client: r.from, Endpoint: endpoint, Protocol: model.TCP, Outcome: outcome, Took: s.Clock.Since(begin)})
		}
		if err == nil {
			r.pool.chose(r.client, endpoint)
			return &stream{r.conn, conn, endpoint, s.ResetRemoved}, nil
		}
		r.pool.refused(r.client, endpoint)
		problem = errors.Join(problem, err)
		if !errors.Is(err, socketerror.ConnectionRefused) && !errors.Is(err, socketerror.ConnectionReset) {
			candidates = append(candidates, endpoint)
		}
	}
	return nil, problem
}

// outcomeOf returns what an error says about an endpoint. It is not known if this node lacks
// something.
func outcomeOf(err error) (_ dataplane.Outcome, known bool) {
	switch {
	case err == nil:
		return dataplane.Accepted, true
	case errors.Is(err, socketerror.ConnectionRefused), errors.Is(err, socketerror.ConnectionReset):
		return dataplane.Refused, true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, socketerror.TimedOut), errors.Is(err, socketerror.HostUnreachable), errors.Is(err, socketerror.NetworkUnreachable):
		return dataplane.Unanswered, true
	}
	return 0, false
}

func dialTCP(ctx context.Context, d net.Dialer, endpoint netip.AddrPort) (*net.TCPConn, error) {
	conn, err := d.DialContext(ctx, "tcp", endpoint.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// join copies in both directions until both have ended, and closes both connections. If this
// process ends before, however that comes, the kernel resets them: a reader must not mistake
// truncation for the end of the stream.
func join(a, b *net.TCPConn) {
	there, back := &half{from: a, to: b}, &half{from: b, to: a}
	for _, c := range []*net.TCPConn{a, b} {
		_ = c.SetLinger(0) // it may be closed already
	}
	var other sync.WaitGroup
	other.Go(func() { back.forward(there) })
	there.forward(back)
	other.Wait()
	for _, c := range []*net.TCPConn{a, b} {
		_ = c.SetLinger(-1) // both directions have ended, and what is on its way still arrives
		_ = c.Close()
	}
}

// half is one direction of a stream.
type half struct {
	from, to *net.TCPConn
	ended    atomic.Bool // in order: all of it was passed on
}

// forward copies until EOF, which it forwards.
//
// After a reset the kernel reports an error once, and to either direction; to the other one it
// looks like EOF. But a connection that we have not closed our side of is not over with EOF.
func (h *half) forward(opposite *half) {
	err := transfer(h.to, h.from)
	if err != nil || over(h.from) && !opposite.ended.Load() {
		reset(h.to)
		reset(h.from)
		return
	}
	h.ended.Store(true)
	_ = h.to.CloseWrite() // it may be closed already
}

// reset closes a connection with a RST.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
