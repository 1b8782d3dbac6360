package relay

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/internal/base/socketerror"
	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// IdleTimeout is how long a UDP client keeps its endpoint without a packet in
// either direction, by default. It is the kernel's default for UDP streams.
const IdleTimeout = 2 * time.Minute

// udpFront passes packets of clients to their sessions.
type udpFront struct {
	*server
	conn   *net.UDPConn
	closed chan struct{}

	mu       sync.Mutex // never held across I/O
	sessions map[netip.AddrPort]*session
	sweeping bool // while there is something to sweep
}

func (s *server) openUDP() (front, error) {
	conn, err := s.listenConfig(false).ListenPacket(s.lifetime, s.network("udp"), s.Address.String())
	if err != nil {
		return nil, err
	}
	f := &udpFront{
		server: s, conn: conn.(*net.UDPConn), closed: make(chan struct{}),
		sessions: map[netip.AddrPort]*session{},
	}
	socket, err := f.conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.running.Go(func() { f.receive(socket) })
	return f, nil
}

func (f *udpFront) address() netip.AddrPort { return f.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func (f *udpFront) close() {
	close(f.closed)
	_ = f.conn.Close() // the address is released even if it fails
	f.endWhere(func(*session) bool { return true })
}

// receive forwards packets until the front is closed.
func (f *udpFront) receive(socket syscall.RawConn) {
	backoff := listenBackoff{server: f.server}
	var control [64]byte
	for {
		err := withPacket(socket, func(buffer []byte) error {
			n, length, _, client, err := f.conn.ReadMsgUDPAddrPort(buffer, control[:])
			if err == nil {
				f.forward(netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), hopsIn(control[:length]), buffer[:n])
			}
			return err
		})
		switch {
		case errors.Is(err, net.ErrClosed):
			// One that was being created when the front closed may be left.
			f.endWhere(func(*session) bool { return true })
			return
		case err != nil:
			backoff.wait(err, f.closed)
		default:
			backoff.reset()
		}
	}
}

// forward sends a packet to the client's endpoint, or to another one if that
// refuses.
func (f *udpFront) forward(client netip.AddrPort, hops int, packet []byte) {
	for i := range plan.ProxyTries {
		if i > 0 {
			f.Retried()
		}
		s, err := f.session(client, hops)
		if err != nil {
			return // its refusal is told
		}
		if s == nil {
			break
		}
		err = s.send(f, packet)
		if err == nil || errors.Is(err, socketerror.MessageTooLong) || errors.Is(err, socketerror.NoBuffers) {
			return // packets that are too long or too many are lost, as on any network
		}
		f.end(s, err)
	}
	f.Refused(NoEndpoint)
}

// recheckAfter is after how long without packets it is asked again what a client
// sends to: it may have forgotten about it as well, and use its port for another
// frontend.
const recheckAfter = time.Second

// session returns the session of a client, or creates one; nil if it has no
// endpoint. Only receive calls it, so that none is created twice.
func (f *udpFront) session(client netip.AddrPort, hops int) (*session, error) {
	f.mu.Lock()
	s := f.sessions[client]
	f.mu.Unlock()
	if s != nil {
		f.Budget.touch(s)
	}
	if s != nil && s.idle(f.Clock.Now()) < recheckAfter {
		return s, nil
	}
	pool := f.paths.findUDP(client, f.address())
	if s != nil {
		if s.pool == pool {
			return s, nil
		}
		f.end(s, net.ErrClosed)
	}
	if pool == nil {
		return nil, nil
	}
	left, ok := next(hops)
	if !ok {
		f.refuseLoop(pool)
		return nil, errLoop
	}
	for _, endpoint := range pool.candidates(client.Addr()) {
		s, err := f.newSession(client, left, pool, endpoint)
		if errors.Is(err, errExcess) {
			return nil, err
		}
		if err != nil {
			f.Logger.V(4).Info("Cannot reach an endpoint", "address", f.Address.String(), "err", err.Error())
			continue
		}
		if !pool.chose(client.Addr(), endpoint) || !pool.begin(s, endpoint) { // removed meanwhile
			s.close()
			continue
		}
		f.begin(s)
		f.Accepted()
		return s, nil
	}
	return nil, nil
}

// errExcess is the error of a session that exceeds the Budget, errLoop of one whose packets
// passed too many relays.
var (
	errExcess = errors.New("there are too many")
	errLoop   = errors.New("it goes round in circles")
)

// evictions is how many sessions make room for another one at most: two, so that a client or Service
// that has too much, because others came, has less each time.
const evictions = 2

// take takes the share of a session. Others of the same client, or to the same Service, make room
// if there is none.
func (f *udpFront) take(s share) error {
	e := f.Budget.take(s)
	for range evictions {
		if e == nobody {
			return nil
		}
		victim := f.Budget.victim(s, e)
		if victim == nil {
			f.refuseExcess(s, e)
			return errExcess
		}
		victim.front.end(victim, net.ErrClosed)
		e = f.Budget.take(s)
	}
	if e != nobody && !f.Budget.exchange(s) {
		f.refuseExcess(s, e)
		return errExcess
	}
	return nil
}

func (f *udpFront) begin(s *session) {
	f.mu.Lock()
	f.sessions[s.client] = s
	if !f.sweeping {
		f.sweeping = true
		f.running.Go(f.sweep)
	}
	f.mu.Unlock()
	f.running.Go(func() { f.end(s, s.answer(f)) })
}

// tried tells how an endpoint took the packets of a client.
func (f *udpFront) tried(s *session, o dataplane.Outcome) {
	f.Tried(dataplane.Attempt{Client: s.client, Endpoint: s.endpoint, Protocol: model.UDP, Outcome: o, Took: f.Clock.Since(s.begun)})
}

// end removes a session that failed with an error. An endpoint that refused
// loses its affinity to the client.
func (f *udpFront) end(s *session, err error) {
	f.mu.Lock()
	if f.sessions[s.client] == s {
		delete(f.sessions, s.client)
	}
	f.mu.Unlock()
	s.close()
	if errors.Is(err, socketerror.ConnectionRefused) || errors.Is(err, socketerror.ConnectionReset) { // as Windows says it
		f.tried(s, dataplane.Refused)
	}
	if !errors.Is(err, net.ErrClosed) {
		s.pool.refused(s.client.Addr(), s.endpoint)
	}
}

func (f *udpFront) endWhere(over func(*session) bool) {
	var ended []*session
	f.mu.Lock()
	for client, s := range f.sessions {
		if over(s) {
			delete(f.sessions, client)
			ended = append(ended, s)
		}
	}
	f.mu.Unlock()
	for _, s := range ended {
		s.close()
	}
}

// sweep ends idle sessions, as long as there are any sessions.
func (f *udpFront) sweep() {
	for f.stillSweeping() {
		timer := f.Clock.NewTimer(f.Options.IdleTimeout / 4)
		select {
		case <-timer.C():
			idle := f.Clock.Now().Add(-f.Options.IdleTimeout).UnixNano()
			f.endWhere(func(s *session) bool { return s.used.Load() <= idle })
		case <-f.closed:
			timer.Stop()
			return
		}
	}
}

func (f *udpFront) stillSweeping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweeping = len(f.sessions) > 0
	return f.sweeping
}

func dialUDP(d net.Dialer, endpoint netip.AddrPort) (*net.UDPConn, error) {
	conn, err := d.Dial("udp", endpoint.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// session connects a UDP client with its endpoint by a socket of its own, by
// which replies are matched to clients.
type session struct {
	client, endpoint netip.AddrPort
	pool             *Pool
	front            *udpFront
	part             share    // of the budget
	places           [3]place // among those of its client, of its Service, and all; of the budget
	conn             *net.UDPConn
	socket           syscall.RawConn
	spoofed          *spoofedSource // nil if the kernel chose the source address
	begun            time.Time
	used             atomic.Int64 // when the last packet passed, in nanoseconds
}

func (f *udpFront) newSession(client netip.AddrPort, hops int, pool *Pool, endpoint netip.AddrPort) (*session, error) {
	part := share{client.Addr(), pool.Balancer, filesOfFlow}
	if err := f.take(part); err != nil {
		return nil, err
	}
	conn, spoofed, err := f.paths.dialUDP(origin{client.Addr(), hops}, pool, endpoint)
	if err != nil {
		f.Budget.give(part)
		return nil, err
	}
	s := &session{client: client, endpoint: endpoint, pool: pool, front: f, part: part, conn: conn, spoofed: spoofed, begun: f.Clock.Now()}
	s.used.Store(s.begun.UnixNano())
	f.Budget.enter(s)
	if s.socket, err = conn.SyscallConn(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// idle returns how long no packet passed.
func (s *session) idle(now time.Time) time.Duration {
	return time.Duration(now.UnixNano() - s.used.Load())
}

// renewAfter is much less than the kernel's shortest timeout for UDP (30 s).
const renewAfter = 10 * time.Second

func (s *session) send(f *udpFront, packet []byte) error {
	now := f.Clock.Now()
	if s.spoofed != nil && s.idle(now) > renewAfter {
		if err := s.spoofed.renew(); err != nil {
			return err
		}
	}
	s.used.Store(now.UnixNano())
	_, err := s.conn.Write(packet)
	return err
}

// answer forwards packets of the endpoint to the client until the session is
// closed or the endpoint refuses.
func (s *session) answer(f *udpFront) error {
	for answers := 0; ; answers++ {
		err := withPacket(s.socket, func(buffer []byte) error {
			n, err := s.conn.Read(buffer)
			if err != nil {
				return err
			}
			s.used.Store(f.Clock.Now().UnixNano())
			_, _ = f.conn.WriteToUDPAddrPort(buffer[:n], s.client) // the client may be gone
			if answers == 0 {
				f.tried(s, dataplane.Accepted)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// lost lets the next packet of the client choose another endpoint.
func (s *session) lost(bool) { s.close() }

func (s *session) close() {
	s.pool.end(s)
	if s.conn.Close() != nil {
		return // it was closed before
	}
	s.front.Budget.leave(s)
	if s.spoofed != nil {
		s.spoofed.forget()
	}
}

// maxPacket is the maximum size of a packet.
const maxPacket = 64 << 10

var buffers = sync.Pool{New: func() any { return new([maxPacket]byte) }}
