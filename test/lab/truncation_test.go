//go:build linux

package lab_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// A proxy that is killed resets the streams that it relays, in both directions, and also if
// one direction has ended: nobody takes a part of what was sent for all of it.
func TestKilledProxyResetsStreams(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, from, to string
		flags          []string
	}{
		{"userspace", "client", "192.0.2.10:30080", []string{"--proxy-mode=userspace"}},
		{"loopback node port", "node1", "127.0.0.1:30080", []string{"--proxy-mode=nftables", "--nodeport-addresses=localhost"}},
		{"sandbox", "client", "192.0.2.10:30080", []string{"--sandbox"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := &userspaceNode{T: t, Lab: lab.Start(t), dir: t.TempDir()}
			write(t, n.dir, "web.yaml", strings.Replace(loopbackManifests, "port: 8080", "port: 7000", 1), 0)
			p := launch(t, n.Lab, lab.ProxyOptions{Manifests: n.dir, Flags: tt.flags})
			settle(t, p, n.dir, 0)
			s := streams{ends: make(chan end), killed: make(chan struct{})}
			n.serve("pod1", 7000, s.serve)
			to := netip.MustParseAddrPort(tt.to)
			eventually(t, func() bool {
				return n.Connect(t.Context(), lab.Flow{From: tt.from, Protocol: lab.TCP, To: to, Timeout: lab.ShortTimeout}).Kind != lab.Refused
			})
			for _, kind := range []string{fast, slow, halfClosed, upload, fast, slow, halfClosed, upload} {
				c, err := n.dial(tt.from, to)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				s.begin(t, c.(*net.TCPConn), kind)
			}
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			close(s.killed)
			for range 8 {
				if e := testkit.Receive(t, s.ends, "the end of a stream"); !errors.Is(e.err, syscall.ECONNRESET) {
					t.Errorf("a reader of kind %q gets %v, want a reset", e.kind, e.err)
				}
			}
		})
	}
}

// The kinds of streams, as clients ask for them.
const (
	fast       = "fast download"
	slow       = "slow download" // that reads nothing before the proxy is killed
	halfClosed = "half-closed download"
	upload     = "upload"
)

// streams are connections over which data flows without an end.
type streams struct {
	ends   chan end
	killed chan struct{}
}

// end is how a stream of a kind ended for its reader.
type end struct {
	kind string
	err  error
}

// serve is the endpoint: it reads uploads, and else sends.
func (s *streams) serve(c net.Conn) {
	defer c.Close()
	kind := make([]byte, 1)
	if _, err := io.ReadFull(c, kind); err != nil {
		return // a connection that tries whether there is somebody
	}
	if _, err := c.Write(kind); err != nil {
		return
	}
	if kind[0] == upload[0] {
		s.read(c, upload)
		return
	}
	_, _ = io.Copy(c, zeros{})
}

func (s *streams) read(from io.Reader, kind string) {
	_, err := io.Copy(io.Discard, from)
	if err == nil {
		err = io.EOF
	}
	s.ends <- end{kind, err}
}

// begin asks for a stream and waits until it flows.
func (s *streams) begin(t *testing.T, c *net.TCPConn, kind string) {
	t.Helper()
	if err := c.SetDeadline(testkit.Deadline(testkit.Timeout)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, kind[:1])
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatalf("%s does not begin: %v", kind, err)
	}
	switch kind {
	case upload:
		go func() { _, _ = io.Copy(c, zeros{}) }()
		return
	case halfClosed:
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		if kind == slow {
			<-s.killed
		}
		s.read(c, kind)
	}()
}
