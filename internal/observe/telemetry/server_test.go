//go:build linux

package telemetry

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"syscall"

	"sluice/internal/base/httpserver"
	"sluice/internal/testkit"
)

// start runs a server until the test ends, or until stop, which returns its error.
func start(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return stop
}

// onAnyPort listens on a free port, and returns it.
func onAnyPort(t *testing.T, s *Server) (address func() string) {
	t.Helper()
	found := make(chan string, 1)
	s.listen = func(network, _ string) (net.Listener, error) {
		socket, err := net.Listen(network, "127.0.0.1:0")
		if err == nil {
			found <- socket.Addr().String()
		}
		return socket, err
	}
	return sync.OnceValue(func() string { return <-found })
}

func TestServerServesUntilCancelled(t *testing.T) {
	s := newWorld(t).server()
	address := onAnyPort(t, s)
	stop := start(t, s)
	response, err := http.Get("http://" + address() + "/proxyMode")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || string(body) != "nftables" {
		t.Errorf("answer is %q, %v", body, err)
	}
	if err := stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	socket, err := net.Listen("tcp", address())
	if err != nil {
		t.Fatalf("the address is not free afterwards: %v", err)
	}
	socket.Close()
}

func TestProfilesMayTakeLonger(t *testing.T) {
	s := newWorld(t).server()
	address := onAnyPort(t, s)
	start(t, s)
	response, err := http.Get("http://" + address() + "/debug/pprof/trace?seconds=0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || len(body) == 0 {
		t.Errorf("trace is %s, %d bytes, %v", response.Status, len(body), err)
	}
}

// listenWith fails to listen for each of the reasons in turn, and then listens.
// listening is closed before it does.
func listenWith(s *Server, reasons ...error) (listening <-chan struct{}) {
	free := make(chan struct{})
	s.listen = func(network, _ string) (net.Listener, error) {
		if len(reasons) > 0 {
			err := reasons[0]
			reasons = reasons[1:]
			return nil, &net.OpError{Op: "listen", Net: network, Err: os.NewSyscallError("bind", err)}
		}
		close(free)
		return net.Listen(network, "127.0.0.1:0")
	}
	return free
}

func TestTakenAddressIsRetriedAndReportedOnce(t *testing.T) {
	w := newWorld(t)
	var failed, logged []string
	s := w.server(func(o *ServerOptions) {
		o.Address = "127.0.0.1:10249"
		o.Failed = func(err error) { failed = append(failed, err.Error()) }
		o.Logger = funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{})
	})
	reasons := []error{syscall.EADDRINUSE, syscall.EADDRINUSE, syscall.EADDRNOTAVAIL}
	listening := listenWith(s, reasons...)
	stop := start(t, s)
	for range reasons {
		testkit.Eventually(t, func() error {
			if !w.clock.HasWaiters() {
				return errors.New("it does not wait for the next try")
			}
			return nil
		})
		w.clock.Step(httpserver.RetryAfter)
	}
	testkit.Receive(t, listening, "it listens once it can")
	if err := stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if len(failed) != 2 || !strings.Contains(failed[0], "127.0.0.1:10249") {
		t.Errorf("reported %q, want each reason once", failed)
	}
	if len(logged) != 2 || !strings.Contains(logged[0], "ss -ltnp") {
		t.Errorf("logged %q, want each reason once, with a remedy", logged)
	}
}

func TestHardFail(t *testing.T) {
	reported := 0
	s := newWorld(t).server(func(o *ServerOptions) {
		o.HardFail, o.Logger = true, logr.Discard()
		o.Failed = func(error) { reported++ }
	})
	listenWith(s, syscall.EADDRINUSE)
	if err := s.Run(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("it ended with %v", err)
	}
	if reported != 1 {
		t.Errorf("reported %d times", reported)
	}
}
