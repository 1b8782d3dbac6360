package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// Options is what a Relay is made of.
type Options struct {
	// Address and Protocol, which is TCP or UDP, are where it listens.
	Address  netip.AddrPort
	Protocol model.Protocol
	// Device is the one interface that clients may come through, "" for all.
	Device string
	// Slots bounds the TCP connections of all relays that share it; nil for no
	// bound. Those that are too many wait to be accepted.
	Slots chan struct{}

	// ResetRemoved has TCP connections reset when their endpoint serves no longer,
	// instead of going on.
	ResetRemoved bool

	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
	// Accepted is told of each TCP connection, and of each UDP client, that gets
	// an endpoint; nil if nobody wants to know.
	Accepted func()
	// Refused is told of each TCP connection that was accepted, and of each UDP
	// packet, that no endpoint took; nil if nobody wants to know.
	Refused func()
}

// maxTries is how many endpoints a connection is tried with.
const maxTries = 3

// Relay listens on an address while its route wants that. Its methods are for
// one goroutine.
type Relay struct {
	Options
	pool    pool
	front   front // nil while it does not listen
	streams streams

	lifetime context.Context // of connections
	running  sync.WaitGroup
}

// front is the side of a Relay that clients see.
type front interface {
	// follow takes in that the pool is another.
	follow() error
	// close frees the address.
	close()
}

// New returns a Relay that does not listen before Set. When ctx ends, so do all
// of its connections.
func New(ctx context.Context, o Options) *Relay {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Accepted == nil {
		o.Accepted = func() {}
	}
	if o.Refused == nil {
		o.Refused = func() {}
	}
	return &Relay{Options: o, pool: newPool(o.Clock), lifetime: ctx}
}

// Set replaces the route, which endpoints keep the connections that they have,
// and for how long a client stays with its endpoint; 0 for not. When it fails the
// Relay does not listen, and Set is to be called again.
func (r *Relay) Set(route plan.Route, serves func(netip.AddrPort) bool, affinity time.Duration) error {
	r.pool.set(route.Endpoints, serves, affinity)
	r.streams.resetWhere(r.gone)
	if route.Verdict() == plan.Reject {
		r.Close()
		return nil
	}
	if r.front == nil {
		front, err := r.open()
		if err != nil {
			return err
		}
		r.front = front
	}
	return r.front.follow()
}

func (r *Relay) gone(endpoint netip.AddrPort) bool { return !r.pool.keeps(endpoint) }

// Listening tells whether the Relay listens.
func (r *Relay) Listening() bool { return r.front != nil }

// Close frees the address. TCP connections go on until they end by themselves or
// the context of New does; Set makes it listen again.
func (r *Relay) Close() {
	if r.front != nil {
		r.front.close()
		r.front = nil
	}
}

// Wait waits until all connections of a closed Relay have ended.
func (r *Relay) Wait() { r.running.Wait() }

func (r *Relay) open() (front, error) {
	switch r.Protocol {
	case model.TCP:
		return r.openTCP()
	case model.UDP:
		return r.openUDP()
	}
	return nil, fmt.Errorf("listen on %v: %v is not relayed: %w", r.Address, r.Protocol, errors.ErrUnsupported)
}

// network has the family in its name, so that each family has sockets of its
// own: it makes package net set IPV6_V6ONLY.
func (r *Relay) network(protocol string) string {
	if r.Address.Addr().Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}

// listenConfig prepares sockets before they get their address.
func (r *Relay) listenConfig() *net.ListenConfig {
	prepare := func(fd int) error {
		if r.Device != "" {
			if err := unix.BindToDevice(fd, r.Device); err != nil {
				return fmt.Errorf("bind to device %s: %w", r.Device, err)
			}
		}
		if r.Protocol == model.TCP && r.pool.empty() {
			return mute(fd) // from the first packet on
		}
		return nil
	}
	return &net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error { return control(socket, prepare) }}
}

func control(socket syscall.RawConn, act func(fd int) error) error {
	var result error
	if err := socket.Control(func(fd uintptr) { result = act(int(fd)) }); err != nil {
		return err
	}
	return result
}

// How long a listener pauses after an error, such as a lack of sockets.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// listenBackoff is what a listener has with its socket.
type listenBackoff struct {
	relay *Relay
	pause time.Duration
}

// wait pauses for longer each time, and tells of the first of several errors.
// It returns at once when closed is.
func (t *listenBackoff) wait(err error, closed <-chan struct{}) {
	r := t.relay
	if t.pause == 0 {
		r.Logger.Error(err, "A listener pauses", "address", r.Address.String(), "protocol", r.Protocol.String())
	}
	t.pause = min(max(2*t.pause, minPause), maxPause)
	timer := r.Clock.NewTimer(t.pause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-closed:
	}
}

// reset says that all is well again.
func (t *listenBackoff) reset() { t.pause = 0 }
