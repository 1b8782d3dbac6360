package httpserver

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// mostConnections is how many connections one server keeps open. Those who watch a
// node are few, and each connection takes some 20 KB of memory.
const mostConnections = 256

// Connections bounds how many connections one or several servers keep open. The one
// that comes on top takes the place of another: of the one that has gone longest
// without a request, or, if all are being answered, of the one that has been for
// longest. So those who connect and say nothing, or read nothing, cannot keep
// others out.
type Connections struct {
	most int

	mu sync.Mutex
	// waiting are without a complete request, and busy are being answered: each a
	// list of *conn, the one that has been so for longest first.
	waiting, busy list.List
}

// NewConnections returns Connections of which so many may be open.
func NewConnections(most int) *Connections { return &Connections{most: most} }

// Bound makes the connections of a server that was not started yet count. It returns
// the socket for the server to serve on.
func (c *Connections) Bound(server *http.Server, socket net.Listener) net.Listener {
	handler, inner := server.Handler, server.ConnContext
	server.ConnContext = func(ctx context.Context, accepted net.Conn) context.Context {
		own, ok := accepted.(*conn)
		if !ok {
			return ctx
		}
		if inner != nil {
			ctx = inner(ctx, own.Conn)
		}
		return context.WithValue(ctx, connKey{}, own)
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if own, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.move(own, &c.busy)
			defer c.move(own, &c.waiting)
		}
		if r.Body == http.NoBody {
			ReadNoMore(w)
		}
		handler.ServeHTTP(w, r)
	})
	return &boundListener{socket, c}
}

// ReadNoMore says that all of a request was read. Without that, the time that a
// client has to send it would go on and end the answer.
func ReadNoMore(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not possible: then there is no such time
}

// admit adds a connection, and ends another if it is one too many.
func (c *Connections) admit(own *conn) {
	if last := c.add(own); last != nil {
		_ = last.Conn.Close() // its server hears of that by itself
	}
}

// add returns the connection that has to go, nil for none.
func (c *Connections) add(own *conn) (last *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting.Len()+c.busy.Len() >= c.most {
		for _, l := range []*list.List{&c.waiting, &c.busy} {
			if first := l.Front(); first != nil {
				last = first.Value.(*conn)
				last.leave()
				break
			}
		}
	}
	own.enter(&c.waiting)
	return last
}

// move puts a connection that is still open last in another list.
func (c *Connections) move(own *conn, to *list.List) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own.list != nil {
		own.leave()
		own.enter(to)
	}
}

func (c *Connections) remove(own *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own.leave()
}

// connKey is the key of the connection in a request's context.
type connKey struct{}

// conn is a connection that counts. The lock of its Connections guards what follows.
type conn struct {
	net.Conn
	all     *Connections
	list    *list.List // in which it is, nil if it counts no more
	element *list.Element
}

func (c *conn) enter(l *list.List) { c.list, c.element = l, l.PushBack(c) }

func (c *conn) leave() {
	if c.list != nil {
		c.list.Remove(c.element)
		c.list, c.element = nil, nil
	}
}

// Close ends the connection.
func (c *conn) Close() error {
	c.all.remove(c)
	return c.Conn.Close()
}

// CloseWrite lets a client that still sends get an answer: its server looks for it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

type boundListener struct {
	net.Listener
	all *Connections
}

func (l *boundListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	own := &conn{Conn: accepted, all: l.all}
	l.all.admit(own)
	return own, nil
}
