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

// Options configures a Relay.
type Options struct {
	// Address and Protocol, which is TCP or UDP, are what it listens on.
	Address  netip.AddrPort
	Protocol model.Protocol
	// Device is the only interface that clients may come through, "" for any.
	Device string
	// Slots bounds the TCP connections of all relays that share it; nil for no
	// bound. Excess connections wait to be accepted.
	Slots chan struct{}

	// ResetRemoved resets TCP connections when their endpoint no longer serves.
	ResetRemoved bool

	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
	// Accepted is called for each TCP connection, and for each UDP client, that
	// gets an endpoint; may be nil.
	Accepted func()
	// Refused is called for each accepted TCP connection, and for each UDP
	// packet, that no endpoint took; may be nil.
	Refused func()
}

// maxTries is how many endpoints are tried for a connection.
const maxTries = 3

// Relay listens on an address while its route requires it. Its methods are for
// one goroutine.
type Relay struct {
	Options
	pool    pool
	front   front // nil while it does not listen
	streams streams

	lifetime context.Context // of connections
	running  sync.WaitGroup
}

// front is the listening side of a Relay.
type front interface {
	// follow adapts to a changed pool.
	follow() error
	// close releases the address.
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

// Set replaces the route, the function that reports whether an endpoint keeps
// its connections, and the affinity timeout, 0 for none. If it fails, the Relay
// does not listen, and Set is to be called again.
func (r *Relay) Set(route plan.Route, serves func(netip.AddrPort) bool, affinity time.Duration) error {
	r.pool.set(route, serves, affinity)
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

// Listening reports whether the Relay listens.
func (r *Relay) Listening() bool { return r.front != nil }

// Close releases the address. TCP connections go on until they end by
// themselves or the context of New does; Set makes it listen again.
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

// network returns a network name with the family in it, with which package net
// sets IPV6_V6ONLY, so that each family has its own sockets.
func (r *Relay) network(protocol string) string {
	if r.Address.Addr().Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}

// listenConfig sets options on sockets before they are bound.
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

// The pauses of a listener after an error, such as a lack of sockets.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// listenBackoff is the backoff of a listener whose socket fails.
type listenBackoff struct {
	relay *Relay
	pause time.Duration
}

// wait pauses for longer each time, and logs the first of a series of errors.
// It returns immediately when closed is closed.
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

// reset ends a series of errors.
func (t *listenBackoff) reset() { t.pause = 0 }
