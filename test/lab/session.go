package lab

import (
	"fmt"
	"time"
)

// Session is a connection that stays open, as of a client with a connection
// pool.
type Session struct {
	flow Flow
	conn *conn
}

// Open opens a connection, of TCP or UDP, that stays until it is closed.
func (l *Lab) Open(f Flow) (*Session, error) {
	if f.Timeout == 0 {
		f.Timeout = DefaultTimeout
	}
	h, err := l.Host(f.From)
	if err != nil {
		return nil, err
	}
	c, err := h.open(f)
	if err != nil {
		return nil, err
	}
	s := &Session{flow: f, conn: c}
	err = c.SetDeadline(time.Now().Add(f.Timeout))
	if err == nil {
		err = c.connect()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("open %v: %w", f, err)
	}
	return s, nil
}

// Ask sends a line and returns the answer: the connection is still alive.
func (s *Session) Ask() (Answer, error) {
	err := s.conn.SetDeadline(time.Now().Add(s.flow.Timeout))
	var a Answer
	if err == nil {
		a, err = s.conn.ask()
	}
	if err != nil {
		return a, fmt.Errorf("ask again on %v: %w", s.flow, err)
	}
	return a, nil
}

// Close ends the connection.
func (s *Session) Close() error { return s.conn.Close() }
