package httpserver

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConnections is how many connections one server keeps open. Each takes about 20 KB
	// of memory, and legitimate clients are few.
	maxConnections = 256
	// unreadAfter is how long a client may take to read an answer, and slowAfter how long the
	// answer may take, while others wait for it.
	unreadAfter = 250 * time.Millisecond
	slowAfter   = 2 * time.Second
	// deferSeconds is how long the kernel keeps a connection to itself until its request arrives, where it
	// can. One whose request takes longer, also as the machine is too busy for it, has waited like any other.
	deferSeconds = 1
)

// Connections limits how many connections one or several servers keep open. One more
// replaces the one that has waited longest for a request. If all have one, it waits until one
// has been answered, or replaces one whose client does not read the answer or asked for something
// slow. So clients that send or read nothing cannot keep others out, and however many they are,
// whoever sends a request with the first packet is answered.
type Connections struct {
	limit int

	mu sync.Mutex
	// waiting are without a complete request, and busy have one: lists of *conn, the
	// oldest first.
	waiting, busy list.List
	// room is notified when a connection could be admitted.
	room sync.Cond
}

// NewConnections returns Connections with a limit.
func NewConnections(limit int) *Connections {
	c := &Connections{limit: limit}
	c.room.L = &c.mu
	return c
}

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
			own.answered.Store(false)
			c.move(own, &c.busy)
			defer own.answered.Store(true)
		}
		if r.Body == http.NoBody {
			ReadNoMore(w)
		}
		handler.ServeHTTP(w, r)
	})
	deferAccept(socket)
	return &boundListener{socket, c}
}

// ReadNoMore ends the read deadline of a request that was read in full. Otherwise it
// would end the answer.
func ReadNoMore(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // if unsupported, there is no deadline
}

// admit adds a connection, and closes another if there are too many.
func (c *Connections) admit(own *conn) {
	complete := hasRequest(own.Conn)
	if last := c.add(own, complete); last != nil {
		_ = last.Conn.Close() // its server notices
	}
}

// add returns the connection to close, nil for none.
func (c *Connections) add(own *conn, complete bool) (last *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last = c.awaitRoom(); last != nil {
		last.leave()
	}
	if complete {
		own.enter(&c.busy)
	} else {
		own.enter(&c.waiting)
	}
	return last
}

func (c *Connections) full() bool { return c.waiting.Len()+c.busy.Len() >= c.limit }

// awaitRoom waits while all connections are being answered. It returns the one to replace, nil if
// that is not necessary.
func (c *Connections) awaitRoom() *conn {
	for c.full() {
		if first := c.waiting.Front(); first != nil {
			return first.Value.(*conn)
		}
		stuck, left := c.mostStuck()
		if left <= 0 {
			return stuck
		}
		alarm := time.AfterFunc(min(left, unreadAfter), c.room.Broadcast) // others may be stuck sooner
		c.room.Wait()
		alarm.Stop()
	}
	return nil
}

// mostStuck returns the connection that can be replaced soonest of those that are being answered, and
// when.
func (c *Connections) mostStuck() (stuck *conn, left time.Duration) {
	now := time.Now()
	for e := c.busy.Front(); e != nil; e = e.Next() {
		own := e.Value.(*conn)
		if until := own.stuckAt().Sub(now); stuck == nil || until < left {
			stuck, left = own, until
		}
	}
	return stuck, left
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
	since   time.Time // in the list
	// writing is since when the client was sent what it has not read, in nanoseconds; 0 if it has
	// room for more.
	writing atomic.Int64
	// answered says that the handler has returned. The end of its answer may not be sent yet.
	answered atomic.Bool
}

// stuckAt is when the connection is to be replaced if it was not answered.
func (c *conn) stuckAt() time.Time {
	at := c.since.Add(slowAfter)
	if began := c.writing.Load(); began != 0 {
		if unread := time.Unix(0, began).Add(unreadAfter); unread.Before(at) {
			return unread
		}
	}
	return at
}

// Read reads a part of a request. After an answer that is when all of it was sent.
func (c *conn) Read(p []byte) (int, error) {
	if c.answered.CompareAndSwap(true, false) {
		c.all.move(c, &c.all.waiting)
	}
	return c.Conn.Read(p)
}

// Write writes a part of an answer.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Store(time.Now().UnixNano())
	defer c.writing.Store(0)
	return c.Conn.Write(p)
}

func (c *conn) enter(l *list.List) {
	c.list, c.element, c.since = l, l.PushBack(c), time.Now()
	if l == &c.all.waiting {
		c.all.room.Broadcast()
	}
}

func (c *conn) leave() {
	if c.list != nil {
		c.list.Remove(c.element)
		c.list, c.element = nil, nil
		c.all.room.Broadcast()
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
