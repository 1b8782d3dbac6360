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

// maxConnections is how many connections one server keeps open. Each takes about 20 KB
// of memory, and legitimate clients are few.
const maxConnections = 256

// Connections limits how many connections one or several servers keep open. One more
// replaces another: the one that has waited longest for a request, or, if all are being
// answered, the one that has been for longest. So clients that send or read nothing
// cannot keep others out.
type Connections struct {
	limit int

	mu sync.Mutex
	// waiting are without a complete request, and busy are being answered: lists of
	// *conn, the oldest first.
	waiting, busy list.List
}

// NewConnections returns Connections with a limit.
func NewConnections(limit int) *Connections { return &Connections{limit: limit} }

// Bound applies the limit to a server that was not started yet. It returns the listener
// for the server.
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

// ReadNoMore ends the read deadline of a request that was read in full. Otherwise it
// would end the answer.
func ReadNoMore(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // if unsupported, there is no deadline
}

// admit adds a connection, and closes another if there are too many.
func (c *Connections) admit(own *conn) {
	if last := c.add(own); last != nil {
		_ = last.Conn.Close() // its server notices
	}
}

// add returns the connection to close, nil for none.
func (c *Connections) add(own *conn) (last *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting.Len()+c.busy.Len() >= c.limit {
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

// move moves a connection that is still open to the end of a list.
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

// connKey is the context key of the conn.
type connKey struct{}

// conn is a counted connection. Its list and element are guarded by all.mu.
type conn struct {
	net.Conn
	all     *Connections
	list    *list.List // nil once it is closed
	element *list.Element
}

func (c *conn) enter(l *list.List) { c.list, c.element = l, l.PushBack(c) }

func (c *conn) leave() {
	if c.list != nil {
		c.list.Remove(c.element)
		c.list, c.element = nil, nil
	}
}

// Close closes the connection.
func (c *conn) Close() error {
	c.all.remove(c)
	return c.Conn.Close()
}

// CloseWrite is used by the server so that a client that still sends gets an answer.
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
