package lab

import "fmt"

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

// Listen waits for an unsolicited line, and returns how that ended.
func (s *Session) Listen() error {
	_, err := s.conn.listen()
	return err
}

// Close ends the connection.
func (s *Session) Close() error {
	if s.flow.Protocol == SCTP {
		s.conn.abort()
	}
	return s.conn.Close()
}
