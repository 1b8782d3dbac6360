package httpserver

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

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
	case errors.Is(err, syscall.EADDRINUSE):
		return "end the program that uses the port (ss -ltnp shows it; it may be another kube-proxy), or choose another by " + flag
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "give the address to an interface of this machine, or choose another by " + flag
	case errors.Is(err, syscall.EACCES):
		return "choose a port above 1023 by " + flag
	}
	return "none needed if it passes: it is tried again"
}
