package health

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"sluice/internal/base/backoff"
	"sluice/internal/base/httpserver"
	"sluice/internal/testkit"
)

func TestIPv6SocketsLeaveIPv4Alone(t *testing.T) {
	socket, err := listenOn(netip.AddrPortFrom(netip.IPv6Unspecified(), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	raw, err := socket.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	only := 0
	var failure error
	if err := raw.Control(func(fd uintptr) {
		only, failure = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	}); err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	if only != 1 {
		t.Error("IPV6_V6ONLY is not set")
	}
}

func TestEndlessHeaderIsRefused(t *testing.T) {
	socket, err := listenOn(netip.AddrPortFrom(here, 0))
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(socket, http.NotFoundHandler(), httpserver.NewConnections(1), logr.Discard(), func(err error) { t.Errorf("broke: %v", err) })
	defer l.drain(time.Second)
	request, err := http.NewRequest(http.MethodGet, "http://"+socket.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Long", strings.Repeat("x", 2*httpserver.MaxHeaderBytes))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %s", response.Status)
	}
}

func TestRetriesBackOff(t *testing.T) {
	now := time.Unix(1000, 0)
	srv := &server{}
	for _, want := range []time.Duration{backoff.First, 2 * backoff.First} {
		srv.failed(logr.Discard(), errors.New("taken"), now)
		if got := srv.tries.Next().Sub(now); got != want {
			t.Errorf("the next try is after %v, want %v", got, want)
		}
	}
	srv.succeeded(logr.Discard())
	if !srv.tries.Due(now) {
		t.Error("a success does not end the pause")
	}
}

func TestNewReasonIsReported(t *testing.T) {
	var log testkit.Journal
	srv := &server{}
	for _, reason := range []string{"taken", "taken", "gone", "gone", "taken"} {
		srv.failed(log.Logger(), errors.New(reason), time.Now())
	}
	if lines := log.With("Cannot listen"); len(lines) != 3 {
		t.Errorf("reports %q, want three", lines)
	}
}

func TestRemedies(t *testing.T) {
	tests := []struct {
		in   error
		want string
	}{
		{unix.EADDRINUSE, "another healthCheckNodePort"},
		{unix.EADDRNOTAVAIL, "--nodeport-addresses"},
		{unix.EMFILE, "tried again"},
	}
	for _, tt := range tests {
		err := fmt.Errorf("listen: %w", os.NewSyscallError("bind", tt.in))
		if got := remedy(err); !strings.Contains(got, tt.want) {
			t.Errorf("remedy of %v is %q, want one with %q", err, got, tt.want)
		}
	}
}
