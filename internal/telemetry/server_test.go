package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
)

// start runs a server until the test ends, or until stop, which returns how it
// ended.
func start(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return stop
}

// onAnyPort listens on a port that is free, and tells which.
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

func TestTheServerServesUntilTheEnd(t *testing.T) {
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

func TestAProfileMayTakeLongerThanOtherAnswers(t *testing.T) {
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

// flaky is a socket that is taken until it is free.
type flaky struct {
	mu    sync.Mutex
	err   error
	tries int
}

func (f *flaky) listen(network, _ string) (net.Listener, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	if f.err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: os.NewSyscallError("bind", f.err)}
	}
	return net.Listen(network, "127.0.0.1:0")
}

func (f *flaky) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *flaky) wantTries(t *testing.T, want int) {
	t.Helper()
	testkit.Eventually(t, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.tries != want {
			return fmt.Errorf("tried %d times, want %d", f.tries, want)
		}
		return nil
	})
}

func TestAnAddressThatIsTakenIsTriedAgainAndReportedOnce(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var failed, logged []string
	s := w.server(func(o *ServerOptions) {
		o.Address = "127.0.0.1:10249"
		o.Failed = func(err error) { mu.Lock(); failed = append(failed, err.Error()); mu.Unlock() }
		o.Logger = funcr.New(func(_, line string) { mu.Lock(); logged = append(logged, line); mu.Unlock() }, funcr.Options{})
	})
	socket := &flaky{err: unix.EADDRINUSE}
	s.listen = socket.listen
	stop := start(t, s)
	again := func(tries int) {
		t.Helper()
		socket.wantTries(t, tries)
		testkit.Eventually(t, func() error {
			if !w.clock.HasWaiters() {
				return errors.New("it does not wait for the next try")
			}
			return nil
		})
		w.clock.Step(retryAfter)
	}
	again(1)
	again(2)
	socket.set(unix.EADDRNOTAVAIL)
	again(3)
	socket.set(nil)
	socket.wantTries(t, 4)
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

func TestHardFailEndsTheServerThatCannotListen(t *testing.T) {
	reported := 0
	s := newWorld(t).server(func(o *ServerOptions) {
		o.HardFail, o.Logger = true, logr.Discard()
		o.Failed = func(error) { reported++ }
	})
	s.listen = (&flaky{err: unix.EADDRINUSE}).listen
	if err := s.Run(t.Context()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("it ended with %v", err)
	}
	if reported != 1 {
		t.Errorf("reported %d times", reported)
	}
}
