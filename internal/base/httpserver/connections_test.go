package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// bounded serves with a limit of connections until the test ends. The page /hold is
// answered when release is closed.
func bounded(t *testing.T, most int) (at string, held chan struct{}, release chan struct{}) {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	held, release = make(chan struct{}, 16), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		held <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "held")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Hour, ReadTimeout: time.Hour} // no timeouts
	bound := NewConnections(most).Bound(server, socket)
	go server.Serve(bound)
	t.Cleanup(func() { server.Close() })
	return socket.Addr().String(), held, release
}

func dial(t *testing.T, at, say string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, say); err != nil {
		t.Fatal(err)
	}
	return c
}

// ended waits until the server has ended a connection.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(testkit.Deadline(testkit.Timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); isTimeout(err) {
		t.Fatal("the connection is still there")
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func get(t *testing.T, at, path string) string {
	t.Helper()
	c := dial(t, at, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	defer c.Close()
	if err := c.SetReadDeadline(testkit.Deadline(testkit.Timeout)); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(c)
	return string(text)
}

func TestIdleConnectionsAreClosedFirst(t *testing.T) {
	for name, say := range map[string]string{
		"nothing":           "",
		"half a request":    "GET / HTTP/1.1\r\nHost: ",
		"a request, before": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"half a body":       "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf",
	} {
		t.Run(name, func(t *testing.T) {
			const most, all = 8, 100
			at, _, _ := bounded(t, most)
			var over atomic.Int64
			for range all {
				c := dial(t, at, say)
				go func() { _, _ = io.Copy(io.Discard, c); over.Add(1) }()
			}
			testkit.Eventually(t, func() error {
				if n := over.Load(); n < all-most {
					return fmt.Errorf("%d connections were closed", n)
				}
				return nil
			})
			if text := get(t, at, "/"); !strings.HasSuffix(text, "here") {
				t.Errorf("the answer is %q", text)
			}
		})
	}
}

func TestBusyConnectionsAreClosedLast(t *testing.T) {
	at, held, release := bounded(t, 2)
	answered := dial(t, at, "GET /hold HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	<-held
	for range 20 {
		dial(t, at, "")
	}
	if text := get(t, at, "/"); !strings.HasSuffix(text, "here") {
		t.Errorf("the answer is %q", text)
	}
	close(release)
	if text, err := io.ReadAll(answered); err != nil || !strings.HasSuffix(string(text), "held") {
		t.Errorf("the answer is %q, %v", text, err)
	}
}

func TestBusyConnectionsAreClosedToo(t *testing.T) {
	at, held, _ := bounded(t, 2)
	const hold = "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"
	first := dial(t, at, hold)
	<-held
	dial(t, at, hold)
	<-held
	if text := get(t, at, "/"); !strings.HasSuffix(text, "here") {
		t.Errorf("the answer is %q", text)
	}
	ended(t, first)
}

// A client that does not read its answer is replaced sooner than one whose answer takes long.
func TestUnreadAnswersAreClosedFirst(t *testing.T) {
	all := NewConnections(2)
	client, server := net.Pipe()
	defer client.Close()
	slow, unread := &conn{Conn: server, all: all}, &conn{Conn: server, all: all}
	for _, c := range []*conn{slow, unread} {
		if last := all.add(c, true); last != nil {
			t.Fatal("there was room")
		}
	}
	go unread.Write([]byte("which nobody reads"))
	testkit.Until(t, func() bool { return unread.writing.Load() != 0 })
	if stuck, left := all.mostStuck(); stuck != unread || left > unreadAfter {
		t.Errorf("stuck is %p, after %v; want %p", stuck, left, unread)
	}
	if last := all.add(&conn{Conn: server, all: all}, true); last != unread {
		t.Errorf("replaced was %p, want %p", last, unread)
	}
}

// The read deadline of a request does not end its answer.
func TestAnswerMayOutlastTheReadTimeout(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	timeout := testkit.Scaled(50 * time.Millisecond)
	server := &http.Server{ReadTimeout: timeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			fmt.Fprint(w, "cut off")
		case <-time.After(4 * timeout):
			fmt.Fprint(w, "complete")
		}
	})}
	go func() { served <- Serve(ctx, server, socket, testkit.Timeout) }()
	if text := get(t, socket.Addr().String(), "/"); !strings.HasSuffix(text, "complete") {
		t.Errorf("the answer is %q", text)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The resources of many connections are bounded, and released.
func TestConnectionFloodLeavesNothing(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })
	go func() { served <- Serve(ctx, &http.Server{Handler: handler}, socket, time.Second) }()
	at := socket.Addr().String()
	for range 2000 {
		dial(t, at, "")
	}
	if text := get(t, at, "/"); !strings.HasSuffix(text, "here") {
		t.Errorf("the answer is %q", text)
	}
	testkit.Eventually(t, func() error {
		if n := runtime.NumGoroutine() - before; n > maxConnections+10 {
			return fmt.Errorf("%d goroutines for at most %d connections", n, maxConnections)
		}
		return nil
	})
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, func() error {
		if n := runtime.NumGoroutine(); n > before+5 {
			return fmt.Errorf("%d goroutines are left, there were %d", n, before)
		}
		return nil
	})
}

// However many connections come, of whatever kind, who sends a request is answered.
func TestFloodsLoseNoRequest(t *testing.T) {
	for name, say := range map[string]string{
		"nothing":        "",
		"half a request": "GET / HTTP/1.1\r\nHost: ",
		"a request":      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			at, _, _ := bounded(t, 8)
			ctx, cancel := context.WithCancel(t.Context())
			var flood sync.WaitGroup
			defer flood.Wait()
			defer cancel()
			var opened atomic.Int64
			for range 8 {
				flood.Go(func() {
					for ctx.Err() == nil {
						var open []net.Conn
						for range 20 {
							c, err := net.Dial("tcp", at)
							if err != nil {
								break
							}
							_ = c.(*net.TCPConn).SetLinger(0) // reset it in the end: there are only so many ports
							_, _ = io.WriteString(c, say)
							open = append(open, c)
							opened.Add(1)
						}
						for _, c := range open {
							c.Close()
						}
					}
				})
			}
			for n := 0; n < 50 || opened.Load() < 1000; n++ {
				began := time.Now()
				text := get(t, at, "/")
				if took := time.Since(began); took < deferSeconds*time.Second && !strings.HasSuffix(text, "here") {
					t.Errorf("answer %d after %v is %q", n, took, text)
				}
			}
		})
	}
}
