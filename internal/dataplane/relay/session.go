package relay

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/internal/dataplane"
)

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
