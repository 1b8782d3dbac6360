package health

import (
	"errors"
	"net/http"
	"sync/atomic"
	"syscall"

	"github.com/go-logr/logr"

	"sluice/internal/base/backoff"
)

// server answers health checks of one Service on one address.
type server struct {
	serverKey
	healthy        func() bool
	localEndpoints atomic.Int64 // read by handlers; everything else belongs to Services

	listener *listener     // nil while it does not listen
	tries    backoff.Tries // to listen
}

// ServeHTTP gives the same answer to every request: the port identifies the
// Service.
func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	answer{serviceName(s.service), int(s.localEndpoints.Load()), s.healthy()}.write(w)
}

func (s *server) log(to logr.Logger) logr.Logger {
	return to.WithValues("service", s.service.String(), "address", s.at.String())
}

func (s *server) succeeded(log logr.Logger) {
	if s.tries.Failures() == 0 {
		log = log.V(1)
	}
	s.log(log).Info("Listening on a health check node port")
	s.tries.Succeed()
}

// remedy returns what an administrator can do about a failure to listen.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "end the program that uses the port (ss -ltnp shows it), or create the Service again with another healthCheckNodePort"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "give the address to an interface of this machine, or choose others by --nodeport-addresses"
	}
	return "none needed if it passes: it is tried again"
}
