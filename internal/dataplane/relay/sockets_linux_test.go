package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/testkit"
)

// What was on its way when both sides had ended the stream arrives, however slowly it is read.
func TestEndInOrderLosesNothing(t *testing.T) {
	b := newFixture(t, model.TCP)
	const size = 256 << 10
	began := make(chan struct{}, 1)
	b.set(0, serveTCP(t, testkit.Loopback(2), func(c *net.TCPConn) {
		began <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
		_, _ = c.Write(make([]byte, size))
	}))
	d := net.Dialer{Control: func(_, _ string, socket syscall.RawConn) error {
		return control(socket, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}}
	conn, err := d.Dial("tcp", b.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, began, "the connection")
	b.Close()
	b.Wait() // the relay has closed both of its connections
	_ = conn.SetDeadline(testkit.Deadline(testkit.Timeout))
	if n, err := io.Copy(io.Discard, conn); n != size || err != nil {
		t.Errorf("the client reads %d bytes and %v, want %d and the end", n, err, size)
	}
}

func TestLackOfSocketsPauses(t *testing.T) {
	b := newFixture(t, model.TCP)
	b.set(0, named(t, "one", testkit.Loopback(2)))
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	noMore(t, func() {
		to := &unix.SockaddrInet4{Port: int(b.Address.Port()), Addr: b.Address.Addr().As4()}
		if err := unix.Connect(client, to); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, func() error {
			if len(b.log.With("A listener pauses")) == 0 {
				return errors.New("the lack of sockets is not logged")
			}
			return nil
		})
	})
	if _, err := unix.Read(client, make([]byte, 1)); err != nil {
		t.Errorf("the connection that waited is not served: %v", err)
	}
	if n := len(b.log.With("A listener pauses")); n != 1 {
		t.Errorf("it is logged %d times, want once", n)
	}
}

// noMore runs f while no file can be opened.
func noMore(t *testing.T, f func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	f()
}

func TestNoSocketIsLeftBehind(t *testing.T) {
	endpoint := named(t, "one", testkit.Loopback(2))
	before := openFiles(t)
	for range 3 {
		b := newFixture(t, model.TCP)
		b.set(0, endpoint)
		for range 20 {
			conn := b.dialTCP()
			readLine(t, conn)
			conn.Close()
		}
		b.Close()
		b.Wait()
	}
	testkit.Eventually(t, func() error { // the endpoint closes its side in its own time
		if after := openFiles(t); after > before {
			return fmt.Errorf("%d sockets are open, and %d were before", after, before)
		}
		return nil
	})
}

func TestNoUDPSocketIsLeftBehind(t *testing.T) {
	endpoint := answerUDP(t, "one", anyPort(2))
	before := openFiles(t)
	for range 3 {
		b := newFixture(t, model.UDP)
		b.set(0, endpoint)
		for range 20 {
			c := b.client()
			c.ask()
			c.Close()
		}
		b.Close()
		b.Wait()
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d sockets are open, and %d were before", after, before)
	}
}

// openFiles counts the open files of this process, without those by which it is
// counted and those that the Go library keeps for the next splice.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, e := range entries {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(name, "socket:") {
			count++
		}
	}
	return count
}
