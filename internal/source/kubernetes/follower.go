package kubernetes

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// follower keeps the sink in step with one kind.
type follower struct {
	*Source
	kind      *kind
	store     *store
	api       *api // nil while none is chosen
	reflector *cache.Reflector
	told      string // the last thing that was logged about the choice
}

func (s *Source) newFollower(k *kind) *follower {
	return &follower{Source: s, kind: k, store: newStore(k.name, s.outlet)}
}

// run lists and watches until the context ends, the first time at once.
func (f *follower) run(ctx context.Context) {
	pause := f.options.retry.DelayWithReset(f.options.Clock, calm)
	_ = pause.Until(ctx, true, true, func(ctx context.Context) (done bool, err error) {
		f.round(ctx)
		return false, nil
	})
}

// round lists once and then watches for as long as that goes well.
func (f *follower) round(ctx context.Context) {
	if f.api == nil && !f.choose(ctx) {
		return
	}
	err := f.reflector.ListAndWatchWithContext(ctx)
	switch {
	case apierrors.IsNotFound(err) && len(f.kind.apis) > 1:
		// The server is not the one it was when the API was chosen.
		f.api = nil
	case apierrors.IsForbidden(err) && f.kind.optional:
		// Roles from before the kind existed do not allow it.
		f.tell("The proxy may not list this kind, going on without", "remedy", remedy(err))
		f.outlet.listed(f.kind.name)
		f.rest(ctx)
	}
}

// choose finds out which API the server has for the kind. It answers false if
// there is none, after a while, and if the server does not tell.
func (f *follower) choose(ctx context.Context) bool {
	candidates := f.kind.apis
	for i, a := range candidates {
		granted := !f.kind.optional && i == len(candidates)-1
		served, err := granted, error(nil)
		if !granted {
			served, err = f.serves(a)
		}
		if err != nil {
			f.connection.failed(f.kind.name, fmt.Errorf("asking for the APIs of %s: %w", a.groupVersion, err))
			return false
		}
		if served {
			f.use(ctx, a, i > 0)
			return true
		}
	}
	f.connection.reached(f.kind.name)
	f.without(ctx)
	return false
}

// serves asks the server whether it has an API.
func (f *follower) serves(a *api) (bool, error) {
	list, err := f.options.Client.Discovery().ServerResourcesForGroupVersion(a.groupVersion)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == a.resource }), nil
}

func (f *follower) use(ctx context.Context, a *api, instead bool) {
	if instead {
		f.tell("The API server lacks a newer API, using an older one", "version", a.groupVersion, "resource", a.resource)
	}
	requests := &listWatch{
		kind: f.kind, api: a, store: f.store, connection: f.connection, timeout: f.options.listTimeout,
	}
	backoff, logger := f.options.retry, klog.FromContext(ctx)
	f.api = a
	f.reflector = cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc:  requests.list,
			WatchFuncWithContext: requests.watch,
		}, f.options.Client),
		&record{}, f.store,
		cache.ReflectorOptions{Name: f.kind.name, TypeDescription: a.resource, Clock: f.options.Clock, Backoff: &backoff, Logger: &logger},
	)
}

// without takes note that the server has nothing of the kind.
func (f *follower) without(ctx context.Context) {
	f.tell("The API server does not have this kind, going on without")
	_ = f.store.Replace(nil, "") // cannot fail without objects
	f.rest(ctx)
}

// tell logs what was chosen, unless it was the same the last time.
func (f *follower) tell(message string, keysAndValues ...any) {
	if f.told != message {
		f.told = message
		f.options.Logger.WithValues("kind", f.kind.name).Info(message, keysAndValues...)
	}
}

// rest waits until it is time to look again for what the server lacks.
func (f *follower) rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-f.options.Clock.After(f.options.ResyncPeriod):
	}
}
