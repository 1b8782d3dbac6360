package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/socketerror"
	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Options configures a Relay or a Router. Functions may be nil.
type Options struct {
	// Address and Protocol, which is TCP or UDP, are what it listens on.
	Address  netip.AddrPort
	Protocol model.Protocol
	// Choose returns the pool of a client of a Relay, and may be called by any goroutine; nil for one pool, which
	// the Relay has of its own.
	Choose func(client netip.Addr) *Pool
	// NetNS is an open network namespace to work in; 0 is the caller's own.
	NetNS int
	// FreeBind allows an address that the node does not have (yet).
	FreeBind bool
	// Device is the only interface that clients may come through, "" for any.
	Device string
	// Budget bounds what connections need, of all that share it; nil for no bound. Excess TCP
	// connections are reset, and excess UDP clients replace others.
	Budget *Budget
	// IdleTimeout is how long a UDP client keeps its endpoint without a packet in
	// either direction; 0 for IdleTimeout.
	IdleTimeout time.Duration

	// ResetRemoved resets TCP connections when their endpoint no longer serves.
	ResetRemoved bool

	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
	// Accepted is called for each TCP connection, and for each UDP client, that
	// gets an endpoint.
	Accepted func()
	// Retried is called for each endpoint that did not take a connection, if
	// another one is tried.
	Retried func()
	// Tried is called after each attempt to open a TCP connection to an endpoint, if that
	// tells something about the endpoint, and when an endpoint first answers a UDP client, or refuses.
	Tried func(dataplane.Attempt)
	// Refused is called for each accepted TCP connection that is reset, and for each UDP
	// packet that is dropped, without having reached an endpoint.
	Refused func(Refusal)
}

// Refusal is why something is refused.
type Refusal uint8

// The refusals.
const (
	NoEndpoint Refusal = iota // no endpoint took it
	NoFile                    // the Budget has none left
	Loop                      // it passed too many relays
)

// Refusals are all of them.
var Refusals = [...]Refusal{NoEndpoint, NoFile, Loop}

// String returns the name, which is part of metrics.
func (r Refusal) String() string { return [...]string{"endpoints", "file-descriptors", "loop"}[r] }

func (o *Options) setDefaults() {
	if o.Budget == nil {
		o.Budget = NewBudget(math.MaxInt / (2 * greed))
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = IdleTimeout
	}
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	for _, f := range []*func(){&o.Accepted, &o.Retried} {
		if *f == nil {
			*f = func() {}
		}
	}
	if o.Tried == nil {
		o.Tried = func(dataplane.Attempt) {}
	}
	if o.Refused == nil {
		o.Refused = func(Refusal) {}
	}
}

// server forwards what arrives at a socket.
type server struct {
	Options
	paths paths

	lifetime context.Context // of connections
	running  sync.WaitGroup
}

// paths knows where connections go.
type paths interface {
	// findTCP and findUDP return the pool for a client, nil if there is none. A packet
	// arrived at an address of the server.
	findTCP(*net.TCPConn) *Pool
	findUDP(client, at netip.AddrPort) *Pool
	// dialTCP and dialUDP connect a client to an endpoint of the pool, which may see
	// another source address than the kernel would choose: then there is a spoofedSource.
	dialTCP(ctx context.Context, from origin, pool *Pool, endpoint netip.AddrPort) (*net.TCPConn, error)
	dialUDP(from origin, pool *Pool, endpoint netip.AddrPort) (*net.UDPConn, *spoofedSource, error)
}

// front is the listening side of a server.
type front interface {
	// address is what it listens on.
	address() netip.AddrPort
	// close releases the address.
	close()
}

// refuseExcess tells of a share that was not to be had.
func (s *server) refuseExcess(of share, e excess) {
	if s.Budget.excess.due(s.Clock.Now()) {
		_, limit := s.Budget.Connections()
		s.Logger.Error(nil, "Connections are refused: there are as many as file descriptors allow", "tooMany", of.who(e), "connections", limit,
			"remedy", "raise the limit of open files (ulimit -n, LimitNOFILE= of systemd), or use proxy mode nftables, which relays none; one client address and one Service get three quarters at most")
	}
	s.Refused(NoFile)
}

// refuseLoop tells of a connection or packet that passed too many relays.
func (s *server) refuseLoop(p *Pool) {
	if s.Budget.loops.due(s.Clock.Now()) {
		s.Logger.Error(nil, "Connections are refused: they go round in circles", "service", p.name,
			"remedy", "look at the endpoints of the Service: one of them is an address of a Service, or a node with a node port, whose packets come back here")
	}
	s.Refused(Loop)
}

func (s *server) open(silent bool) (front, error) {
	switch s.Protocol {
	case model.TCP:
		return s.openTCP(silent)
	case model.UDP:
		return s.openUDP()
	}
	return nil, fmt.Errorf("listen on %v: %v is not relayed: %w", s.Address, s.Protocol, errors.ErrUnsupported)
}

// network returns a network name with the family in it, with which package net
// sets IPV6_V6ONLY, so that each family has its own sockets.
func (s *server) network(protocol string) string {
	if s.Address.Addr().Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}

// Relay listens on an address while its owner wants it to, and forwards each connection to an endpoint
// of the pool that its client may use. Its methods are for one goroutine.
type Relay struct {
	server
	pool  *Pool // its own, if it has one
	front front // nil while it does not listen
}

// New returns a Relay that does not listen before Set or Listen. When ctx ends, so do all of
// its connections.
func New(ctx context.Context, o Options) *Relay {
	o.setDefaults()
	r := &Relay{}
	if o.Choose == nil {
		r.pool = NewBalancer(o.Clock, "the Service at "+o.Address.String()).NewPool()
		o.Choose = func(netip.Addr) *Pool { return r.pool }
	}
	r.server = server{Options: o, paths: byClient(o.Choose), lifetime: ctx}
	return r
}

// Set replaces the route of a Relay with a pool of its own, the function that reports
// whether an endpoint keeps its connections, and the affinity timeout, 0 for none. If it fails, the
// Relay does not listen, and Set is to be called again.
func (r *Relay) Set(route plan.Route, serves func(netip.AddrPort) bool, affinity time.Duration) error {
	r.pool.Set(route, serves, affinity)
	if route.Closed() {
		r.Close()
		return nil
	}
	return r.Listen(!r.pool.empty())
}

// Listen listens, and answers TCP clients or not.
func (r *Relay) Listen(answer bool) error {
	if r.front == nil {
		front, err := r.open(!answer)
		if err != nil {
			return err
		}
		r.front = front
	}
	if tcp, ok := r.front.(*tcpFront); ok {
		return tcp.answer(answer)
	}
	return nil
}

// Listening reports whether it listens.
func (r *Relay) Listening() bool { return r.front != nil }

// Close releases the address, until it is to listen again. TCP connections go on until
// they end by themselves or their context does.
func (r *Relay) Close() {
	if r.front != nil {
		r.front.close()
		r.front = nil
	}
}

// Wait waits until all connections have ended, after Close.
func (r *Relay) Wait() { r.running.Wait() }

// byClient is the paths of a Relay.
type byClient func(client netip.Addr) *Pool

func (choose byClient) findTCP(client *net.TCPConn) *Pool {
	return choose(client.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
}

func (choose byClient) findUDP(client, _ netip.AddrPort) *Pool { return choose(client.Addr()) }

func (byClient) dialTCP(ctx context.Context, from origin, _ *Pool, endpoint netip.AddrPort) (*net.TCPConn, error) {
	return dialTCP(ctx, from.dialer(model.TCP, endpoint), endpoint)
}

func (byClient) dialUDP(from origin, _ *Pool, endpoint netip.AddrPort) (*net.UDPConn, *spoofedSource, error) {
	conn, err := dialUDP(from.dialer(model.UDP, endpoint), endpoint)
	return conn, nil, err
}

// The pauses of a listener after an error, such as a lack of sockets.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// listenBackoff is the backoff of a listener whose socket fails.
type listenBackoff struct {
	server *server
	pause  time.Duration
}

// wait pauses for longer each time, and logs the first of a series of errors.
// It returns immediately when closed is closed.
func (t *listenBackoff) wait(err error, closed <-chan struct{}) {
	s := t.server
	if t.pause == 0 {
		s.Logger.Error(err, "A listener pauses", "address", s.Address.String(), "protocol", s.Protocol.String())
	}
	t.pause = min(max(2*t.pause, minPause), maxPause)
	timer := s.Clock.NewTimer(t.pause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-closed:
	}
}

// reset ends a series of errors.
func (t *listenBackoff) reset() { t.pause = 0 }

// origin is where a connection to an endpoint comes from.
type origin struct {
	client netip.Addr
	// hops is how many routers and relays it may pass, 0 for as many as others.
	hops int
}

// maxHops is how many a client may have left: the usual number.
const maxHops = 64

// next takes a hop off those that a client had left, as a router does, so that a ring of
// Services whose endpoints are addresses of each other ends. It reports whether one is left;
// 0 is a number that is not known, and stays.
func next(hops int) (left int, ok bool) {
	if hops == 0 {
		return 0, true
	}
	left = min(hops, maxHops) - 1
	return left, left > 0
}

// Remedy returns what an administrator can do about a failure to listen on a node port.
func Remedy(err error) string {
	switch {
	case errors.Is(err, socketerror.AddressInUse):
		return "end the program that uses the port (" + socketerror.ShowListeners + " shows it), or give the Service another nodePort"
	case errors.Is(err, socketerror.AddressNotAvailable):
		return "give the address to an interface, or leave it out of --nodeport-addresses"
	case errors.Is(err, socketerror.NotPermitted):
		return "give the Service a nodePort of 1024 or more, or the proxy CAP_NET_BIND_SERVICE"
	}
	return "none needed if it passes: it is tried again"
}
