package health

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/base/backoff"
	"sluice/internal/base/httpserver"
	"sluice/internal/base/socketerror"
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
	case errors.Is(err, socketerror.AddressInUse):
		return "end the program that uses the port (" + socketerror.ShowTCPListeners + " shows it), or create the Service again with another healthCheckNodePort"
	case errors.Is(err, socketerror.AddressNotAvailable):
		return "give the address to an interface of this machine, or choose others by --nodeport-addresses"
	}
	return "none needed if it passes: it is tried again"
}

// weightHeader gives load balancers the weight of this node relative to others.
const weightHeader = "X-Load-Balancing-Endpoint-Weight"

// answer is the response of a health check node port. Load balancers rely on
// its form.
type answer struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int         `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (a answer) status() int {
	if a.LocalEndpoints > 0 && a.ServiceProxyHealthy {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (a answer) write(w http.ResponseWriter) {
	body, err := json.MarshalIndent(a, "", "\t")
	w.Header().Set(weightHeader, strconv.Itoa(a.LocalEndpoints))
	writeJSON(w, a.status(), body, err)
}

// writeJSON writes a response, and returns its status.
func writeJSON(w http.ResponseWriter, status int, body []byte, err error) int {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
	return status
}

// answerTimeout is how long an answer may take: health checks have no reason to be slow.
const answerTimeout = 10 * time.Second

// listener answers HTTP on one address.
type listener struct {
	socket net.Listener
	server *http.Server
}

// listenOn opens a socket. With the family in the network name, package net
// sets IPV6_V6ONLY, so that each family has its own sockets.
func listenOn(at netip.AddrPort) (net.Listener, error) {
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6"
	}
	return net.Listen(network, at.String())
}

// newListener serves on a socket, and calls broke if that ends otherwise than
// by release or drain. all bounds its connections.
func newListener(socket net.Listener, answer http.Handler, all *httpserver.Connections, log logr.Logger, broke func(error)) *listener {
	l := &listener{socket: socket, server: httpserver.New(answer, answerTimeout, log)}
	bound := all.Bound(l.server, socket)
	go func() {
		err := l.server.Serve(bound)
		if !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			broke(err)
		}
	}()
	return l
}

// release frees the address. Accepted connections go on until drain.
func (l *listener) release() {
	_ = l.socket.Close() // the address is released even if it fails
}

func (l *listener) drain(grace time.Duration) { httpserver.Drain(l.server, grace) }
