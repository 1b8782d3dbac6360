//go:build linux

package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/netns"
)

const (
	// forgetTimeout bounds the wait for the kernel, which takes a few milliseconds.
	forgetTimeout = 2 * time.Second
	forgetPoll    = 10 * time.Millisecond
)

// Forget deletes destinations that keep their connections only. The kernel then forgets
// those, with their entries in connection tracking, in the background; until it has,
// replies of an endpoint would still reach its client.
func (d *Dataplane) Forget(ctx context.Context, lost []dataplane.Lost) error {
	deleted, err := d.deleteLost(ctx, lost)
	if err != nil || len(deleted) == 0 {
		return err
	}
	deadline := time.Now().Add(forgetTimeout)
	for pause := forgetPoll; time.Now().Before(deadline); pause *= 2 {
		var left []ipvs.Connection
		if err := netns.Do(d.netns, func() (err error) {
			left, err = ipvs.Connections()
			return err
		}); err != nil {
			return err
		}
		if !slices.ContainsFunc(left, func(c ipvs.Connection) bool { return deleted[destination{c.Service, c.Endpoint}] }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil // a packet ends its connection as well
}

// destination is a destination of a virtual service.
type destination struct {
	service  ipvs.Key
	endpoint netip.AddrPort
}

// deleteLost deletes destinations unless they are in the pool of their server.
func (d *Dataplane) deleteLost(ctx context.Context, lost []dataplane.Lost) (map[destination]bool, error) {
	if err := d.commits.Turn(ctx); err != nil {
		return nil, err
	}
	defer d.commits.End()
	if d.servers == nil {
		return nil, dataplane.ErrUnknown
	}
	b, deleted := &ipvs.Batch{}, map[destination]bool{}
	var touched []*server
	for _, l := range lost {
		s := d.servers[keyFor(l.Frontend, l.Frontend.Addr)]
		if s == nil {
			continue
		}
		at := ipvs.Destination{AddrPort: l.Endpoint}
		i, found := slices.BinarySearchFunc(s.destinations, at, compareDestinations)
		if _, wanted := slices.BinarySearchFunc(s.pool(), at, compareDestinations); wanted || !found {
			continue
		}
		b.DeleteDestination(s.Key, l.Endpoint)
		s.destinations = slices.Delete(s.destinations, i, i+1)
		deleted[destination{s.Key, l.Endpoint}] = true
		touched = append(touched, s)
	}
	if err := d.writer.Commit(ctx, b); err != nil && !errors.Is(err, unix.ENOENT) {
		d.suspicious()
		return nil, err
	}
	return deleted, d.removeIdle(ctx, touched, false)
}
