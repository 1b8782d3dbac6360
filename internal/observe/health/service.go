package health

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/backoff"
	"sluice/internal/base/httpserver"
	"sluice/internal/base/notify"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// ServicesOptions configures Services.
type ServicesOptions struct {
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
	// Failed is called when a health check node port cannot be listened on, the
	// first time and whenever the reason changes; may be nil.
	Failed func(service model.Name, err error)
}

// maxConnections is how many connections the health check node ports of all
// Services keep open together. Load balancers send a request every few seconds,
// and answers are short.
const maxConnections = 1024

// Services serves the health check node ports of all Services.
type Services struct {
	ServicesOptions
	listen func(netip.AddrPort) (net.Listener, error)
	grace  time.Duration // for requests in progress when listening stops

	connections *httpserver.Connections // of all servers

	changed  notify.Signal     // what is desired
	broken   chan brokenServer // servers whose socket failed
	draining sync.WaitGroup

	servers map[serverKey]*server // belongs to the goroutine of Run
}

// serverKey identifies the server of a Service on one address.
type serverKey struct {
	service model.Name
	at      netip.AddrPort
}

// brokenServer is a server that no longer listens, and why.
type brokenServer struct {
	server *server
	err    error
}

// NewServices returns Services that are idle until Run.
func NewServices(o ServicesOptions) *Services {
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	if o.Failed == nil {
		o.Failed = func(model.Name, error) {}
	}
	return &Services{
		ServicesOptions: o,

		listen: listenOn,
		grace:  httpserver.Grace,

		connections: httpserver.NewConnections(maxConnections),

		changed: notify.NewSignal(),
		broken:  make(chan brokenServer),
		servers: map[serverKey]*server{},
	}
}

// Committed makes Run look at what changed.
func (s *Services) Committed(c *engine.Commit) {
	if c.Change.HealthChecks || c.Change.Settings != nil {
		s.changed.Notify()
	}
}

// Run follows the engine until ctx ends, and then stops listening. healthy
// reports the health of the proxy, which is part of each answer. It is called
// once.
func (s *Services) Run(ctx context.Context, e engine.Inspector, healthy func() bool) error {
	defer s.draining.Wait()
	defer func() { s.keep(nil) }()
	for {
		retry, stop := backoff.NewTimer(s.Clock, s.failing)
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-s.changed:
			s.follow(wanted(e), healthy)
		case b := <-s.broken:
			s.close(b.server)
			s.fail(b.server, b.err)
		case <-retry:
		}
		stop()
		s.open(ctx)
	}
}

// wanted returns where to listen and the number of endpoints to report there:
// where node ports answer, in the families of the Service. A client that uses
// IPv4 can be served by IPv4 endpoints only.
func wanted(e engine.Inspector) map[serverKey]int {
	var checks []plan.HealthCheck
	addresses := map[model.Family][]netip.Addr{}
	e.Inspect(func(v engine.View) {
		d := v.Desired
		checks = make([]plan.HealthCheck, 0, len(d.HealthChecks))
		for _, check := range d.HealthChecks {
			checks = append(checks, check)
		}
		for _, f := range model.Families {
			addresses[f] = d.Settings.ListenAddrs(f)
		}
	})
	out := map[serverKey]int{}
	for _, check := range checks {
		for _, f := range model.Families {
			if !check.Has(f) {
				continue
			}
			for _, ip := range addresses[f] {
				out[serverKey{check.Service, netip.AddrPortFrom(ip, check.Port)}] = check.Local(f)
			}
		}
	}
	return out
}

func (s *Services) follow(wanted map[serverKey]int, healthy func() bool) {
	s.keep(wanted)
	for p, localEndpoints := range wanted {
		srv := s.servers[p]
		if srv == nil {
			srv = &server{serverKey: p, healthy: healthy}
			s.servers[p] = srv
		}
		srv.localEndpoints.Store(int64(localEndpoints))
	}
}

// keep removes the servers of all other keys.
func (s *Services) keep(wanted map[serverKey]int) {
	for p, srv := range s.servers {
		if _, ok := wanted[p]; !ok {
			s.close(srv)
			delete(s.servers, p)
		}
	}
}

// open makes servers listen that do not yet and that are due.
func (s *Services) open(ctx context.Context) {
	now := s.Clock.Now()
	for _, srv := range s.servers {
		if srv.listener != nil || !srv.tries.Due(now) {
			continue
		}
		socket, err := s.listen(srv.at)
		if err != nil {
			s.fail(srv, err)
			continue
		}
		srv.listener = newListener(socket, srv, s.connections, s.Logger, func(err error) {
			select {
			case s.broken <- brokenServer{srv, err}:
			case <-ctx.Done():
			}
		})
		srv.succeeded(s.Logger)
	}
}

// fail schedules a retry, and calls failed if the reason is new.
func (s *Services) fail(srv *server, err error) {
	if srv.tries.Log(srv.log(s.Logger), err, s.Clock.Now(), "listen on a health check node port", remedy(err)) {
		s.Failed(srv.service, err)
	}
}

// close stops listening immediately; requests in progress are completed.
func (s *Services) close(srv *server) {
	l := srv.listener
	if l == nil {
		return
	}
	srv.listener = nil
	l.release()
	srv.log(s.Logger).V(1).Info("Stopped listening on a health check node port")
	s.draining.Go(func() { l.drain(s.grace) })
}

func (s *Services) failing(yield func(*backoff.Tries) bool) {
	for _, srv := range s.servers {
		if srv.listener == nil && !yield(&srv.tries) {
			return
		}
	}
}
