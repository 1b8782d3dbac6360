//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Session is a connection that stays open, as of a client with a connection
// pool.
type Session struct {
	flow Flow
	conn *conn
}

// Open opens a connection that stays until it is closed.
func (l *Lab) Open(f Flow) (*Session, error) {
	c, err := l.socketFor(f)
	if err != nil {
		return nil, err
	}
	err = c.connect()
	if err == nil && f.Protocol == SCTP {
		err = c.associate()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("open %v: %w", f, err)
	}
	return &Session{flow: f, conn: c}, nil
}

// Ask sends a line and returns the answer: the connection is still alive.
func (s *Session) Ask() (Answer, error) {
	ask := s.conn.ask
	if s.flow.Protocol == SCTP {
		ask = s.conn.heartbeat
	}
	a, err := ask()
	if err != nil {
		return a, fmt.Errorf("ask again on %v: %w", s.flow, err)
	}
	return a, nil
}

// SetTimeout sets how long to wait for answers, as Flow.Timeout does.
func (s *Session) SetTimeout(timeout time.Duration) { s.conn.timeout = timeout }

// Listen waits for an unsolicited line, and returns how that ended.
func (s *Session) Listen() error {
	_, err := s.conn.listen()
	return err
}

// Flood sends that many datagrams of a size as fast as it can, and returns how long that took.
func (s *Session) Flood(packets, size int) (time.Duration, error) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	data, sent, begin := make([]byte, size), 0, time.Now()
	var failed error
	err = raw.Write(func(fd uintptr) (done bool) {
		for ; sent < packets && failed == nil; sent++ {
			_, failed = unix.Write(int(fd), data)
		}
		if failed == unix.EAGAIN {
			failed = nil
			sent--
			return false
		}
		return true
	})
	return time.Since(begin), errors.Join(err, failed)
}

// Close ends the connection.
func (s *Session) Close() error {
	if s.flow.Protocol == SCTP {
		s.conn.abort()
	}
	return s.conn.Close()
}

// Client returns the address and port that it comes from.
func (s *Session) Client() netip.AddrPort { return s.conn.local }

// Flow returns what was opened.
func (s *Session) Flow() Flow { return s.flow }
