package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// emptyWatch is what clients return for a watch if the server hangs up.
var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())

var errNoAnswer = errors.New("the server closed the connection without an answer")

// listWatch requests lists and watches. The objects of lists go to the store as they are decoded, so
// that the reflector sees lists of nothing; changes become records before it sees them. The success of
// each request is reported to the connection.
type listWatch struct {
	kind       *kind
	api        *api
	store      *store
	connection *connection
	clock      clock.Clock
	retry      wait.Backoff
	timeout    time.Duration // of a list
	expiries   expiries
	listing    *listing // of the last plain list
}

// list requests a list, or a page of it, according to the options.
func (l *listWatch) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	answer, err := l.api.list(limited, l.api.selecting(options))
	if err != nil {
		l.failed(ctx, err)
		return nil, err
	}
	header, err := l.take(answer, options.Continue == "")
	if err != nil {
		l.failed(ctx, err)
		return nil, err
	}
	l.connection.reached(l.kind.name)
	return header, nil
}

// take passes the objects of a list, or of a page of it, to the store, and returns what the reflector
// must know: the list without them.
func (l *listWatch) take(answer runtime.Object, first bool) (*recordList, error) {
	header, err := meta.ListAccessor(answer)
	if err != nil {
		return nil, fmt.Errorf("the answer to a list of %s is not a list: %w", l.api.resource, err)
	}
	if header.GetResourceVersion() == "" {
		// Clients take any JSON object for an empty list. A proxy between here
		// and the server must not make all Services vanish with one.
		return nil, fmt.Errorf("the answer to a list of %s has no resource version", l.api.resource)
	}
	if first {
		l.listing = l.store.begin()
	}
	err = meta.EachListItem(answer, func(obj runtime.Object) error {
		r, err := l.recordOf(obj)
		if err == nil {
			l.listing.add(r.name(), r.events)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &recordList{ListMeta: metav1.ListMeta{
		ResourceVersion:    header.GetResourceVersion(),
		Continue:           header.GetContinue(),
		RemainingItemCount: header.GetRemainingItemCount(),
	}}, nil
}

func (l *listWatch) recordOf(obj runtime.Object) (*record, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("the server sent a %T: %w", obj, err)
	}
	events, err := l.api.convert(obj)
	if err != nil {
		return nil, err
	}
	r := newRecord(o)
	r.events = events
	return r, nil
}

// watch follows the changes since a list. It can also stand for the list
// itself, which newer servers send as a stream of objects: then neither they
// nor the proxy ever hold all of it in memory.
func (l *listWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents == nil {
		return newRecordWatch(ctx, l, options, nil), nil
	}
	if pause := l.expiries.pause(l.retry); pause > 0 && !sleep(ctx, l.clock, pause) {
		return nil, ctx.Err()
	}
	w, err := l.open(ctx, options)
	if err != nil {
		if expired(err) {
			l.expiries.add()
		}
		if !listFollows(err) {
			l.failed(ctx, err)
		}
		return nil, err
	}
	return newRecordWatch(ctx, l, options, w), nil
}

func (l *listWatch) open(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := l.api.watch(ctx, l.api.selecting(options))
	if err == nil && reflect.TypeOf(w) == emptyWatch {
		err = errNoAnswer
	}
	if err != nil {
		return nil, err
	}
	l.connection.reached(l.kind.name)
	return w, nil
}

// listFollows reports whether the failure of a streamed list only means that
// the reflector will request an ordinary one.
func listFollows(err error) bool { return isAnswer(err) && !apierrors.IsTooManyRequests(err) }

// event converts an event of a watch. One that cannot be converted becomes an
// error, so that the reflector lists again and nothing is lost.
func (l *listWatch) event(ctx context.Context, in watch.Event) watch.Event {
	switch in.Type {
	case watch.Error:
		err := apierrors.FromObject(in.Object)
		if expired(err) {
			l.expiries.add()
		}
		l.failed(ctx, err)
		return in
	case watch.Deleted, watch.Bookmark:
		if o, err := meta.Accessor(in.Object); err == nil {
			r := newRecord(o)
			r.Annotations = o.GetAnnotations()
			return watch.Event{Type: in.Type, Object: r}
		}
	}
	r, err := l.recordOf(in.Object)
	if err != nil {
		l.failed(ctx, err)
		return errorEvent(apierrors.NewInternalError(err))
	}
	return watch.Event{Type: in.Type, Object: r}
}

// cancelled reports whether an error is due to the end of our own request. A
// watch can see that before the context does, and client-go only keeps the
// text.
func cancelled(err error) bool { return strings.Contains(err.Error(), context.Canceled.Error()) }

// failed records a failure, unless it is expected: the end of Run, or a version
// that the server no longer has or does not have yet.
func (l *listWatch) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || cancelled(err) || expired(err) {
		return
	}
	if l.kind.denied(l.api, err) {
		l.connection.reached(l.kind.name) // a refusal is an answer too
		return
	}
	l.connection.failed(l.kind.name, fmt.Errorf("getting %s of %s: %w", l.api.resource, l.api.groupVersion, err))
}

// expired reports whether the server does not have the version that was asked for, any more
// or yet.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// expiries counts the times in a row that the server did not have a version. The reflector
// requests another streamed list at once then, which is right once, without a version; a
// server that has none must not be flooded with requests.
type expiries struct{ count atomic.Int32 }

func (e *expiries) add() { e.count.Add(1) }

// listed notes that a list is complete.
func (e *expiries) listed() { e.count.Store(0) }

// pause returns how long to wait before the next list, 0 after the first expiry.
func (e *expiries) pause(retry wait.Backoff) (d time.Duration) {
	for range min(e.count.Load(), int32(retry.Steps)) - 1 {
		d = retry.Step()
	}
	return d
}
