package tunnel

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// pieceSize is how many bytes travel at once.
const pieceSize = 16 << 10

// link is one connection: near is the end in the lab, far the server's.
type link struct {
	near, far net.Conn
	once      sync.Once
	ended     chan struct{}
	forgotten atomic.Bool // nothing passes any more, without notice
}

// close ends both directions gracefully: what was written still arrives.
func (l *link) close() {
	l.once.Do(func() {
		close(l.ended)
		for _, end := range []net.Conn{l.near, l.far} {
			if end != nil {
				_ = end.Close() // a connection that is gone cannot be notified
			}
		}
	})
}

// reset resets both ends; data in flight is lost.
func (l *link) reset() {
	for _, end := range []net.Conn{l.near, l.far} {
		if c, ok := end.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
	}
	l.close()
}

// copy carries the bytes of one direction until either end is gone.
func (t *Tunnel) copy(l *link, to, from net.Conn) {
	defer l.close()
	piece := make([]byte, pieceSize)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if !t.pass(l) {
				return
			}
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until the tunnel lets a piece pass, and reports whether the link still
// exists.
func (t *Tunnel) pass(l *link) bool {
	for {
		if l.forgotten.Load() {
			<-l.ended
			return false
		}
		now := t.current()
		var due <-chan time.Time
		if now.mode == carry {
			if now.delay == 0 {
				return true
			}
			due = time.After(now.delay)
		}
		select {
		case <-due:
			return true
		case <-l.ended:
			return false
		case <-now.changed:
		}
	}
}
