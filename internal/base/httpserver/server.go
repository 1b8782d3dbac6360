package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/socketerror"
)

// Limits of one client. Handlers may extend them.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute // longer than the interval of scrapes
	MaxHeaderBytes = 16 << 10
)

const (
	// Grace is how long answers in flight have at shutdown. It is shorter than the time a
	// process gets to terminate.
	Grace = 2 * time.Second
	// RetryAfter is the pause between two attempts to listen.
	RetryAfter = 5 * time.Second
)

// New returns an HTTP server whose clients have limits, beside how long an answer may take.
func New(handler http.Handler, answerTimeout time.Duration, log logr.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		ErrorLog:          ErrorLog(log),
	}
}

// Server serves HTTP on an address of this machine.
type Server struct {
	// Name is what is served, for the log.
	Name string
	// Address is where to listen, as host and port, and Flag what sets it.
	Address, Flag string
	Handler       http.Handler
	AnswerTimeout time.Duration
	// HardFail ends Run when it cannot listen. Otherwise it retries.
	HardFail bool
	// Failed is called when it cannot listen, the first time and when the reason
	// changes; it may be nil.
	Failed func(error)
	Listen func(network, address string) (net.Listener, error)
	Logger logr.Logger
	Clock  clock.Clock
}

// Run serves until ctx ends, and then returns nil.
func (s *Server) Run(ctx context.Context) error {
	return Persist(ctx, s.Clock, RetryAfter, s.serve, func(err error) error {
		err = fmt.Errorf("serve %s on %s: %w", s.Name, s.Address, err)
		if s.Failed != nil {
			s.Failed(err)
		}
		if s.HardFail {
			return err
		}
		s.Logger.Error(err, "Cannot serve "+s.Name+", trying again", "every", RetryAfter, "remedy", Remedy(err, s.Flag))
		return nil
	})
}

// serve listens and answers until ctx ends or the socket breaks.
func (s *Server) serve(ctx context.Context) error {
	socket, err := s.Listen("tcp", s.Address)
	if err != nil {
		return err
	}
	s.Logger.V(1).Info("Serving "+s.Name, "address", socket.Addr().String())
	return Serve(ctx, New(s.Handler, s.AnswerTimeout, s.Logger), socket, Grace)
}

// Listener returns a function that listens on an address, with or without IPv6. Package
// net listens on an IPv6 socket for the unspecified address of either family; without
// IPv6 it must be an IPv4 socket.
func Listener(ipv6 bool) func(network, address string) (net.Listener, error) {
	if ipv6 {
		return net.Listen
	}
	return func(network, address string) (net.Listener, error) {
		at, err := net.ResolveTCPAddr(network, address)
		if err != nil {
			return nil, err
		}
		if at.IP.IsUnspecified() {
			return net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4zero, Port: at.Port})
		}
		return net.Listen(network, address)
	}
}

// Serve answers on a socket until ctx ends, and then returns nil, or the error of the
// socket if that breaks before. Answers in flight have a grace period to finish. The
// number of open connections is limited.
func Serve(ctx context.Context, server *http.Server, socket net.Listener, grace time.Duration) error {
	socket = NewConnections(maxConnections).Bound(server, socket)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(socket) }()
	select {
	case err := <-ended:
		Drain(server, grace)
		return err
	case <-ctx.Done():
		Drain(server, grace)
		<-ended
		return nil
	}
}

// Drain stops listening, waits for answers in flight for the grace period, and closes
// all connections.
func Drain(server *http.Server, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = server.Shutdown(ctx)
	_ = server.Close() // what is not finished by now
}

// Persist calls serve until ctx ends, and then returns nil. When serve fails it is
// called again after a pause. Failed is called unless the reason is the same as the last
// time; if it returns an error, Persist returns it.
func Persist(ctx context.Context, c clock.Clock, pause time.Duration, serve func(context.Context) error, failed func(error) error) error {
	for lastError := ""; ; {
		err := serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if text := err.Error(); text != lastError {
			lastError = text
			if err := failed(err); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.After(pause):
		}
	}
}

// ErrorLog returns the log for mistakes of clients. It has a high verbosity, because any
// client can make it long.
func ErrorLog(to logr.Logger) *log.Logger {
	return slog.NewLogLogger(logr.ToSlogHandler(to.V(4)), slog.LevelInfo)
}

// Remedy returns what to do about a failure to listen on the address of a flag.
func Remedy(err error, flag string) string {
	switch {
	case errors.Is(err, socketerror.AddressInUse):
		return "end the program that uses the port (" + socketerror.ShowTCPListeners + " shows it; it may be another kube-proxy), or choose another by " + flag
	case errors.Is(err, socketerror.AddressNotAvailable):
		return "give the address to an interface of this machine, or choose another by " + flag
	case errors.Is(err, socketerror.NotPermitted):
		return "choose a port above 1023 by " + flag
	}
	return "none needed if it passes: it is tried again"
}
