package tunnel

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// silence is how long to look for what must not come.
const silence = 100 * time.Millisecond

// setUp connects pod1, on its own loopback, with an echo server of this machine.
func setUp(t *testing.T) (*Tunnel, *lab.Host) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go serve(server)
	pod, err := lab.Start(t).Host("pod1")
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := Open(pod, netip.MustParseAddrPort("127.0.0.1:700"), netip.MustParseAddrPort(server.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tunnel.Close(); err != nil {
			t.Error(err)
		}
	})
	return tunnel, pod
}

// serve answers every line with the same line, and ends a connection after the
// line "bye".
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan() && lines.Text() != "bye"; {
				fmt.Fprintln(c, lines.Text())
			}
		}()
	}
}

type client struct {
	*testing.T
	net.Conn
	reader *bufio.Reader
}

func connect(t *testing.T, pod *lab.Host) client {
	t.Helper()
	c, err := dial(t, pod, "127.0.0.1:700")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dial(t *testing.T, pod *lab.Host, to string) (client, error) {
	c := client{T: t}
	err := pod.Do(func() (err error) {
		c.Conn, err = net.Dial("tcp", to)
		return err
	})
	if err == nil {
		c.reader = bufio.NewReader(c.Conn)
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// wantReset connects and wants to be thrown out, which may happen before the
// connection stands.
func wantReset(t *testing.T, pod *lab.Host, to string) {
	t.Helper()
	c, err := dial(t, pod, to)
	if err == nil {
		_, err = c.hear(testkit.Timeout)
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

func (c client) say(what string) {
	c.Helper()
	if _, err := fmt.Fprintln(c.Conn, what); err != nil {
		c.Fatal(err)
	}
}

// hear reads a line, or returns why there is none.
func (c client) hear(limit time.Duration) (string, error) {
	if err := c.SetReadDeadline(testkit.Deadline(limit)); err != nil {
		return "", err
	}
	line, err := c.reader.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c client) mustHear(want string) {
	c.Helper()
	if got, err := c.hear(testkit.Timeout); got != want || err != nil {
		c.Fatalf("heard %q (%v), want %q", got, err, want)
	}
}

func TestTunnelCarriesConnections(t *testing.T) {
	_, pod := setUp(t)
	first, second := connect(t, pod), connect(t, pod)
	long := strings.Repeat("x", 3*pieceSize)
	first.say("one")
	second.say("two")
	first.mustHear("one")
	second.mustHear("two")
	first.say(long)
	first.mustHear(long)
}

func TestLastWordsOfTheServerArrive(t *testing.T) {
	tunnel, pod := setUp(t)
	c := connect(t, pod)
	c.say("last words")
	c.say("bye")
	c.mustHear("last words")
	if got, err := c.hear(testkit.Timeout); err == nil {
		t.Errorf("heard %q after the end", got)
	}
	testkit.Eventually(t, func() error {
		if n := tunnel.Connections(); n > 0 {
			return fmt.Errorf("the tunnel keeps %d connections that have ended", n)
		}
		return nil
	})
}

func TestStalledConnectionResumes(t *testing.T) {
	tunnel, pod := setUp(t)
	before := connect(t, pod)
	before.say("before")
	before.mustHear("before")
	tunnel.Stall()
	during := connect(t, pod)
	for _, c := range []client{before, during} {
		c.say("held back")
		if got, err := c.hear(silence); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("heard %q (%v) through a stalled tunnel", got, err)
		}
	}
	tunnel.Carry()
	for _, c := range []client{before, during} {
		c.mustHear("held back")
	}
}

func TestCutBreaksOldAndNewConnections(t *testing.T) {
	tunnel, pod := setUp(t)
	before := connect(t, pod)
	before.say("before")
	before.mustHear("before")
	tunnel.Cut()
	if got, err := before.hear(testkit.Timeout); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("heard %q (%v) through a cut tunnel, want a reset", got, err)
	}
	wantReset(t, pod, "127.0.0.1:700")
	if got := tunnel.Refused(); got != 1 {
		t.Errorf("the tunnel refused %d connections, want 1", got)
	}
	tunnel.Carry()
	after := connect(t, pod)
	after.say("after")
	after.mustHear("after")
}

func TestSlowTunnelTakesItsTime(t *testing.T) {
	tunnel, pod := setUp(t)
	c := connect(t, pod)
	tunnel.Slow(silence)
	started := time.Now()
	c.say("slow")
	c.mustHear("slow")
	if took := time.Since(started); took < 2*silence {
		t.Errorf("there and back took %v, want at least %v", took, 2*silence)
	}
}

func TestServerThatIsDownLooksDown(t *testing.T) {
	_, pod := setUp(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused := netip.MustParseAddrPort(closed.Addr().String())
	closed.Close()
	dead, err := Open(pod, netip.MustParseAddrPort("127.0.0.2:700"), unused)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	wantReset(t, pod, "127.0.0.2:700")
}

func TestForgottenConnectionsAreSilent(t *testing.T) {
	tunnel, pod := setUp(t)
	before := connect(t, pod)
	before.say("before")
	before.mustHear("before")
	tunnel.Forget()
	before.say("lost")
	if got, err := before.hear(silence); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q (%v) on a forgotten connection", got, err)
	}
	after := connect(t, pod)
	after.say("after")
	after.mustHear("after")
}
