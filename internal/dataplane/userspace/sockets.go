//go:build linux

package userspace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane/relay"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// sockets are what the proxy listens on for one family: one for each protocol and kind
// of connection.
type sockets struct {
	addr    netip.Addr
	ports   ports
	routers []*relay.Router
	closing sync.Once
}

// protocols are those that are relayed.
var protocols = []model.Protocol{model.TCP, model.UDP}

// listen opens the sockets at an address. A kind of connection has the same port in all
// protocols.
func (d *Dataplane) listen(at netip.Addr) (_ *sockets, err error) {
	s := &sockets{addr: at}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	next := d.ports.First
	for _, outside := range []bool{false, true} {
		for _, masquerade := range []bool{false, true} {
			port, err := d.listenBoth(s, outside, masquerade, &next)
			if err != nil {
				return nil, err
			}
			*s.ports.of(outside, masquerade) = port
		}
	}
	return s, nil
}

// maxTries is how many ports are tried if any will do.
const maxTries = 100

// listenBoth opens the sockets for one kind of connection, at the first free port from
// next on, or at any if there is no range.
func (d *Dataplane) listenBoth(s *sockets, outside, masquerade bool, next *uint16) (port uint16, err error) {
	for try := 0; ; try++ {
		if d.ports.First > 0 && (*next > d.ports.Last || *next == 0) {
			return 0, fmt.Errorf("no free port in the range %d-%d at %v: a range needs at least 8, so that a new process finds some while an old one ends; set portRange to a larger one",
				d.ports.First, d.ports.Last, s.addr)
		}
		port := *next
		var opened []*relay.Router
		for _, protocol := range protocols {
			var r *relay.Router
			if r, err = d.router(netip.AddrPortFrom(s.addr, port), protocol, outside, masquerade); err != nil {
				break
			}
			opened = append(opened, r)
			port = r.ListensOn().Port()
		}
		if d.ports.First > 0 {
			*next++
		}
		if err == nil {
			s.routers = append(s.routers, opened...)
			return port, nil
		}
		for _, r := range opened {
			r.Close()
		}
		if !errors.Is(err, unix.EADDRINUSE) || d.ports.First == 0 && try == maxTries {
			return 0, fmt.Errorf("listen on %v: %w", s.addr, err)
		}
	}
}

func (d *Dataplane) router(at netip.AddrPort, protocol model.Protocol, outside, masquerade bool) (*relay.Router, error) {
	dir := relay.Directory{
		Find:        func(to netip.AddrPort) *relay.Pool { return d.directory.find(to, protocol, outside) },
		Translation: d.translation,
		Source: func(client netip.Addr, endpoint netip.AddrPort, local bool) netip.Addr {
			return d.directory.source(connection{client, plan.Endpoint{AddrPort: endpoint, Local: local}, protocol, masquerade}, at.Addr())
		},
	}
	count := d.counters.of(model.FamilyOf(at.Addr()), protocol)
	return relay.Listen(d.lifetime, relay.Options{
		Address: at, Protocol: protocol, NetNS: d.netns, FreeBind: true,
		Budget: d.budget, IdleTimeout: d.settings.UDPTimeout,
		ResetRemoved: d.settings.ResetRemoved, Logger: d.logger,
		Tried:    d.tried,
		Accepted: count.accepted.inc, Retried: count.retried.inc, Refused: func(why relay.Refusal) { count.refused[why].inc() },
	}, dir)
}

// close releases the addresses. TCP connections go on.
func (s *sockets) close() {
	s.closing.Do(func() {
		for _, r := range s.routers {
			r.Close()
		}
	})
}

// wait waits until all connections have ended, or ctx has.
func (s *sockets) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		for _, r := range s.routers {
			r.Wait()
		}
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
