//go:build linux

package ipvs

import (
	"context"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ipvs"
	"sluice/internal/model"
)

// drainServers deletes destinations that are no longer in use when their last
// connection has ended.
func (d *Dataplane) drainServers(ctx context.Context) {
	every(ctx, drainInterval, func() {
		if d.commits.Turn(ctx) != nil {
			return
		}
		defer d.commits.End()
		if err := d.drain(ctx, slices.Collect(maps.Keys(d.draining))); err != nil && ctx.Err() == nil {
			d.logger.V(1).Info("Cannot remove what has drained from IPVS", "reason", err.Error())
			d.suspicious()
		}
	})
}

// drain deletes destinations of some servers that have no connections any more, and
// records which servers have others.
func (d *Dataplane) drain(ctx context.Context, some []ipvs.Key) error {
	b := &ipvs.Batch{}
	var idle []*server
	for _, k := range some {
		s := d.servers[k]
		if s == nil {
			continue
		}
		now, err := d.writer.Destinations(ctx, k)
		if err != nil {
			return err
		}
		if s.drained(b, now) {
			d.draining[k] = struct{}{}
			continue
		}
		delete(d.draining, k)
		if !s.serves() {
			idle = append(idle, s)
		}
	}
	if err := d.writer.Commit(ctx, b); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return d.removeIdle(ctx, idle, false)
}

// suspicious records that IPVS or the routes may have been changed by others.
func (d *Dataplane) suspicious() {
	d.suspect.Store(true)
	d.disturbed.Notify()
}

// watchCount is how many servers are compared with the kernel at a time.
const watchCount = 20

// watch compares a few servers with the kernel, in turn, and the rules for routing: IPVS
// sends no notifications. What concerns all servers, such as ipvsadm -C, is found by the
// first of them.
func (d *Dataplane) watch(ctx context.Context) {
	every(ctx, watchInterval, func() {
		if d.commits.Turn(ctx) != nil {
			return
		}
		defer d.commits.End()
		if d.servers == nil || d.suspect.Load() {
			return
		}
		same, err := d.compareSome(ctx)
		if err != nil && ctx.Err() == nil {
			d.logger.V(1).Info("Cannot compare IPVS with what it should hold", "reason", err.Error())
		}
		if err == nil && !same {
			d.suspicious()
		}
	})
}

func (d *Dataplane) compareSome(ctx context.Context) (same bool, err error) {
	for _, f := range d.families() {
		if intact, err := d.routes.Intact(f); err != nil || !intact {
			return false, err
		}
	}
	for _, k := range d.nextWatched() {
		if same, err := d.compare(ctx, d.servers[k]); err != nil || !same {
			return same, err
		}
	}
	return true, nil
}

func (d *Dataplane) nextWatched() []ipvs.Key {
	if len(d.watchQueue) == 0 {
		d.watchQueue = slices.Collect(maps.Keys(d.servers))
	}
	n := min(watchCount, len(d.watchQueue))
	next := slices.DeleteFunc(slices.Clone(d.watchQueue[:n]), func(k ipvs.Key) bool {
		s := d.servers[k]
		return s == nil || s.Scheduler == "" // gone, or refused
	})
	d.watchQueue = d.watchQueue[n:]
	return next
}

// compare compares a server with the kernel.
func (d *Dataplane) compare(ctx context.Context, s *server) (same bool, err error) {
	found, there, err := d.writer.Service(ctx, s.Key)
	if err != nil || !there || found != s.Service {
		return false, err
	}
	now, err := d.readDestinations(ctx, s.Key)
	if err != nil {
		return false, err
	}
	return slices.EqualFunc(now, s.destinations, func(a, b ipvs.Destination) bool {
		return a.AddrPort == b.AddrPort && a.Weight == b.Weight
	}), nil
}

// Verify compares the table, all virtual services and the routes with the kernel.
func (d *Dataplane) Verify(ctx context.Context) (ok bool, err error) {
	if ok, err := d.Dataplane.Verify(ctx); err != nil || !ok {
		return ok, err
	}
	ok, err = d.verifyServices(ctx)
	if err == nil && ok {
		ok, err = d.verifyRoutes(ctx)
	}
	if err == nil && !ok {
		d.suspect.Store(true)
	}
	return ok, err
}

func (d *Dataplane) verifyServices(ctx context.Context) (same bool, err error) {
	list, err := d.reader.Services(ctx)
	if err != nil {
		return false, err
	}
	have := make(map[ipvs.Key]ipvs.Service, len(list))
	for _, s := range list {
		have[s.Key] = s
	}
	if err := d.commits.Turn(ctx); err != nil {
		return false, err
	}
	defer d.commits.End()
	for k, s := range d.servers {
		if have[k] == s.Service || s.Scheduler == "" {
			continue
		}
		// It may have changed after the kernel was read.
		if same, err := d.compare(ctx, s); err != nil || !same {
			return same, err
		}
	}
	return true, nil
}

func (d *Dataplane) verifyRoutes(ctx context.Context) (same bool, err error) {
	if err := d.commits.Turn(ctx); err != nil {
		return false, err
	}
	defer d.commits.End()
	if d.servers == nil {
		return true, nil
	}
	present, ruled := maps.Clone(d.routes.Present), maps.Clone(d.routes.Ruled)
	if err := d.routes.Read(model.Families[:]); err != nil {
		return false, err
	}
	return maps.Equal(present, d.routes.Present) && maps.Equal(ruled, d.routes.Ruled), nil
}
