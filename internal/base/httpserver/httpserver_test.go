package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"syscall"

	"sluice/internal/base/socketerror"
	"sluice/internal/testkit"
)

// slow is a server whose answer blocks until it is released.
type slow struct {
	asked, finish chan struct{}
	socket        net.Listener
	answer        chan string // what the client got
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &slow{make(chan struct{}), make(chan struct{}), socket, make(chan string, 1)}
}

func (s *slow) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	close(s.asked)
	<-s.finish
	fmt.Fprint(w, "finished")
}

// serve runs it until ctx ends, and asks it.
func (s *slow) serve(ctx context.Context, grace time.Duration) (ended chan error) {
	ended = make(chan error, 1)
	go func() { ended <- Serve(ctx, &http.Server{Handler: s}, s.socket, grace) }()
	go func() {
		response, err := http.Get("http://" + s.socket.Addr().String())
		if err != nil {
			s.answer <- "none"
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body) // what is cut off is short
		s.answer <- string(body)
	}()
	<-s.asked
	return ended
}

// refuses waits until nothing listens on the address.
func (s *slow) refuses(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, func() error {
		conn, err := net.Dial("tcp", s.socket.Addr().String())
		if err == nil {
			conn.Close()
			return errors.New("it still listens")
		}
		return nil
	})
}

func TestServeDrainsAnswers(t *testing.T) {
	s := newSlow(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := s.serve(ctx, testkit.Timeout)
	cancel()
	s.refuses(t)
	close(s.finish)
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if answer := <-s.answer; answer != "finished" {
		t.Errorf("the answer was %q", answer)
	}
}

func TestSlowAnswersAreCutOff(t *testing.T) {
	s := newSlow(t)
	defer close(s.finish)
	ctx, cancel := context.WithCancel(t.Context())
	ended := s.serve(ctx, time.Millisecond)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if answer := <-s.answer; answer != "none" {
		t.Errorf("the answer was %q", answer)
	}
}

func TestBrokenSocketIsReportedAfterDraining(t *testing.T) {
	s := newSlow(t)
	ended := s.serve(t.Context(), testkit.Timeout)
	s.socket.Close()
	close(s.finish)
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
	if answer := <-s.answer; answer != "finished" {
		t.Errorf("the answer was %q", answer)
	}
}

func TestPersistReportsEachReasonOnce(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	ctx, cancel := context.WithCancel(t.Context())
	reasons := []string{"taken", "taken", "gone", "gone", "taken"}
	tries := make(chan int, len(reasons)+1)
	serve := func(context.Context) error {
		n := len(tries)
		tries <- n
		if n == len(reasons) {
			cancel()
			return nil
		}
		return errors.New(reasons[n])
	}
	var reported []string
	ended := make(chan error, 1)
	go func() {
		ended <- Persist(ctx, clock, time.Hour, serve, func(err error) error { reported = append(reported, err.Error()); return nil })
	}()
	for range reasons {
		testkit.Until(t, clock.HasWaiters)
		clock.Step(time.Hour)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if diff := cmp.Diff([]string{"taken", "gone", "taken"}, reported); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

func TestPersistEndsOnAFinalError(t *testing.T) {
	final := errors.New("final")
	err := Persist(t.Context(), clocktesting.NewFakeClock(time.Unix(1000, 0)), time.Hour,
		func(context.Context) error { return socketerror.AddressInUse },
		func(err error) error { return errors.Join(final, err) })
	if !errors.Is(err, final) || !errors.Is(err, socketerror.AddressInUse) {
		t.Errorf("it ended with %v", err)
	}
}

func TestPersistEndsDuringThePause(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Persist(ctx, clock, time.Hour, func(context.Context) error { return socketerror.AddressInUse }, func(error) error { return nil })
	}()
	testkit.Until(t, clock.HasWaiters)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestRemedy(t *testing.T) {
	tests := []struct {
		in   error
		want string
	}{
		{socketerror.AddressInUse, socketerror.ShowTCPListeners},
		{socketerror.AddressInUse, "--some-address"},
		{socketerror.AddressNotAvailable, "interface of this machine"},
		{socketerror.NotPermitted, "above 1023"},
		{syscall.EMFILE, "tried again"},
	}
	for _, tt := range tests {
		if got := Remedy(fmt.Errorf("listen: %w", tt.in), "--some-address"); !strings.Contains(got, tt.want) {
			t.Errorf("remedy of %v is %q, want one with %q", tt.in, got, tt.want)
		}
	}
}
