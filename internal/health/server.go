package health

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// How long a server that could not listen waits for its next try.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 30 * time.Second
)

// server tells the health of one Service on one address.
type server struct {
	place
	healthy        func() bool
	localEndpoints atomic.Int64 // read by those who answer; all else belongs to Services

	listener  *listener // nil while it does not listen
	failures  int       // to listen, in a row
	lastError string    // of these
	retry     time.Time
}

// ServeHTTP answers whatever is asked: the port says it all.
func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	newAnswer(s.service, int(s.localEndpoints.Load()), s.healthy()).write(w)
}

// failed plans the next try, and tells whether the reason is another than
// before.
func (s *server) failed(log logr.Logger, err error, now time.Time) (news bool) {
	delay := min(retryFirst<<min(s.failures, 16), retryMost)
	s.failures++
	s.retry = now.Add(delay)
	if text := err.Error(); text != s.lastError {
		s.lastError = text
		log.Error(err, "Cannot listen on a health check node port", "service", s.service.String(),
			"address", s.at.String(), "remedy", remedy(err), "retry", delay)
		return true
	}
	log.V(1).Info("Still cannot listen on a health check node port", "service", s.service.String(),
		"address", s.at.String(), "failures", s.failures, "retry", delay)
	return false
}

func (s *server) succeeded(log logr.Logger) {
	if s.failures == 0 {
		log = log.V(1)
	}
	log.Info("Listening on a health check node port", "service", s.service.String(), "address", s.at.String())
	s.failures, s.lastError, s.retry = 0, "", time.Time{}
}

// remedy says what whoever runs the node can do about a failure to listen.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return "end the program that uses the port (ss -ltnp shows it), or create the Service again with another healthCheckNodePort"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return "give the address to an interface of this machine, or choose others by --nodeport-addresses"
	}
	return "none needed if it passes: it is tried again"
}
