//go:build linux

package nftables

import (
	"net"
	"sync"

	"sluice/internal/kernel/nft"
)

// sideConn is the socket of what is off by default: it is open while that is on, and costs no file otherwise. One
// goroutine opens and uses it; any may end it.
type sideConn struct {
	*nft.Conn // nil while it is not needed
	netns     int
	opened    func(*nft.Conn) error // called when it was opened; nil for nothing

	mu    sync.Mutex
	ended bool
}

// open opens it, unless it is.
func (c *sideConn) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Conn != nil {
		return nil
	}
	if c.ended {
		return net.ErrClosed
	}
	conn, err := nft.Dial(c.netns, nft.SendBuffer)
	if err == nil && c.opened != nil {
		if err = c.opened(conn); err != nil {
			conn.Close()
		}
	}
	if err == nil {
		c.Conn = conn
	}
	return err
}

// rest closes it until it is opened again.
func (c *sideConn) rest() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Conn == nil || c.ended {
		return nil
	}
	conn := c.Conn
	c.Conn = nil
	return conn.Close()
}

// end closes it for ever.
func (c *sideConn) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}
