package kubernetes

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// follower keeps the sink up to date with one kind.
type follower struct {
	*Source
	kind      *kind
	store     *store
	at        int // index of the kind's API in use
	reflector *cache.Reflector
}

func (s *Source) newFollower(k *kind) *follower {
	f := &follower{Source: s, kind: k}
	f.store = newStore(s.gate, s.room, f.listed, f.noRoom)
	return f
}

// run lists and watches until the context ends.
func (f *follower) run(ctx context.Context) {
	pause := f.options.retry.DelayWithReset(f.options.Clock, backoffResetAfter)
	_ = pause.Until(ctx, true, true, func(ctx context.Context) (done bool, err error) {
		f.listAndWatch(ctx)
		return false, nil
	})
}

// listAndWatch lists once, by the first API that the server has, and then
// watches until the watch fails.
func (f *follower) listAndWatch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.awaitRoom(ctx, cancel)
	for range f.kind.apis {
		if f.reflector == nil {
			f.use(ctx, f.kind.apis[f.at])
		}
		err := f.reflector.ListAndWatchWithContext(ctx)
		if !isAnswer(err) {
			return
		}
		f.reflector = nil
		if !apierrors.IsNotFound(err) {
			f.at = 0 // the server may have changed: start with the preferred API
			f.refused(ctx, err)
			return
		}
		f.at = (f.at + 1) % len(f.kind.apis)
	}
	if f.at = 0; f.kind.optional {
		f.store.forget()
		f.goWithout(ctx, "the API server does not have it", "nothing has to be done; newer servers have it")
	}
}

// refused handles a kind that the server refuses to list.
func (f *follower) refused(ctx context.Context, err error) {
	switch {
	case !f.kind.optional:
	case apierrors.IsForbidden(err):
		f.goWithout(ctx, "the proxy may not list it", remedy(err))
	default:
		// It will be retried, but the other kinds do not wait for it.
		f.gate.listed(f.kind.name)
	}
}

// goWithout records that the kind is not available, and waits until it is time
// to ask again.
func (f *follower) goWithout(ctx context.Context, reason, remedy string) {
	f.connection.setAbsent(Absence{f.kind.name, reason, remedy})
	f.gate.listed(f.kind.name)
	sleep(ctx, f.options.Clock, f.options.ResyncPeriod)
}

// listed records that the kind was listed completely, but for what had no room. Half a cluster is worse than
// yesterday's: the sink is not in sync as long as something is missing of what there was at the start.
func (f *follower) listed(left missing) {
	f.connection.setListed(f.kind.name, f.kind.apis[f.at], f.at > 0)
	f.noRoom(left)
	if left.objects == 0 {
		f.gate.listed(f.kind.name)
	}
}

// noRoom records what of the kind had no room.
func (f *follower) noRoom(left missing) {
	var err error
	if left.objects > 0 {
		err = &noRoomError{left, f.kind.name, f.room.limit()}
	}
	f.connection.setFull(f.kind.name, err)
}

// awaitRoom calls relist when there is room for what had none.
func (f *follower) awaitRoom(ctx context.Context, relist func()) {
	for sleep(ctx, f.options.Clock, f.options.roomPeriod) {
		if f.store.waits() {
			relist()
			return
		}
	}
}

func (f *follower) use(ctx context.Context, a *api) {
	requests := &listWatch{
		kind: f.kind, api: a, store: f.store, connection: f.connection,
		clock: f.options.Clock, retry: f.options.retry, timeout: f.options.listTimeout,
	}
	backoff, logger := f.options.retry, klog.FromContext(ctx)
	f.reflector = cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc:  requests.list,
			WatchFuncWithContext: requests.watch,
		}, f.options.Client),
		&record{}, f.store,
		cache.ReflectorOptions{Name: f.kind.name, TypeDescription: a.resource, Clock: f.options.Clock, Backoff: &backoff, Logger: &logger},
	)
}

// isAnswer reports whether an error is an answer of the server.
func isAnswer(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer)
}

// sleep returns false if the context ended meanwhile.
func sleep(ctx context.Context, clock clock.Clock, d time.Duration) bool {
	timer := clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
