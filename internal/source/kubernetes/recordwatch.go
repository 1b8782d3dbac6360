package kubernetes

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// minWatchLifetime is how long a watch must last for the next one to be opened
// without a delay.
const minWatchLifetime = time.Second

// rewatchBackoff is the pause before a watch is reopened that lasted for less.
// Servers and proxies end watches as they like, and no event may be delayed for
// more than about a second because of that; but a server that ends all of them
// immediately must not be flooded with requests.
var rewatchBackoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.2, Cap: time.Second, Steps: 10}

var errListCut = errors.New("the server ended a list before it was complete")

// recordWatch forwards the events of a watch, converted to records, but for those that are
// part of a streamed list, which go to the store directly. If the server ends the watch, it opens another one at the last version: the
// reflector only sees failures, and need not list again.
type recordWatch struct {
	requests *listWatch
	// options are those of the next watch. Their version is that of the last
	// event.
	options metav1.ListOptions
	// listing is the streamed list that the watch begins with, nil once it is
	// complete. Until then there is no version to resume from.
	listing *listing
	result  chan watch.Event
	ctx     context.Context // of all requests
	stop    func()
}

// newRecordWatch forwards the events of a watch with these options. If it is a
// streamed list, it was opened already.
func newRecordWatch(ctx context.Context, l *listWatch, options metav1.ListOptions, list watch.Interface) *recordWatch {
	w := &recordWatch{requests: l, options: options, result: make(chan watch.Event)}
	if list != nil {
		w.listing = l.store.begin()
	}
	w.options.SendInitialEvents, w.options.ResourceVersionMatch = nil, ""
	w.ctx, w.stop = context.WithCancel(ctx)
	go w.run(list)
	return w
}

// ResultChan returns the channel of converted events.
func (w *recordWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop ends the watch. It may be called more than once.
func (w *recordWatch) Stop() { w.stop() }

// run ends when the watch cannot be resumed or the reflector stops it.
func (w *recordWatch) run(from watch.Interface) {
	defer close(w.result)
	defer w.stop()
	clock, pause := w.requests.clock, rewatchBackoff
	for {
		opened := clock.Now()
		if from == nil {
			from = w.resume()
		}
		if from == nil || !w.pass(from) {
			return
		}
		if w.listing != nil {
			w.requests.failed(w.ctx, errListCut)
			w.send(errorEvent(apierrors.NewTooManyRequestsError(errListCut.Error()))) // the reflector lists again after a pause
			return
		}
		if clock.Since(opened) >= minWatchLifetime {
			pause = rewatchBackoff
		} else if !sleep(w.ctx, clock, pause.Step()) {
			return
		}
		from = nil
	}
}

// pass forwards the events of one watch. It returns true if the server ended
// it.
func (w *recordWatch) pass(from watch.Interface) bool {
	defer from.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return false
		case event, ok := <-from.ResultChan():
			if !ok {
				return true
			}
			event = w.requests.event(w.ctx, event)
			if w.list(event) {
				continue
			}
			if !w.send(event) || event.Type == watch.Error {
				return false
			}
			w.note(event)
		}
	}
}

// list takes an event that is part of a streamed list, and reports whether it is.
func (w *recordWatch) list(event watch.Event) bool {
	r, ok := event.Object.(*record)
	if !ok || w.listing == nil {
		return false
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		w.listing.add(r.name(), r.events)
	case watch.Deleted:
		w.listing.remove(r.name())
	default:
		return false
	}
	return true
}

func (w *recordWatch) send(event watch.Event) bool {
	select {
	case w.result <- event:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// note records the version of an event that was forwarded.
func (w *recordWatch) note(event watch.Event) {
	r, ok := event.Object.(*record)
	if !ok {
		return
	}
	if event.Type == watch.Bookmark && r.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		w.listing = nil
		w.requests.expiries.listed()
	}
	if r.ResourceVersion != "" {
		w.options.ResourceVersion = r.ResourceVersion
	}
}

// resume opens a watch at the last version, retrying for as long as necessary.
// It returns nil if the reflector stopped the watch, and if the server refuses:
// then it sends the error, and the reflector has to list again.
func (w *recordWatch) resume() watch.Interface {
	l, pause := w.requests, w.requests.retry
	for {
		from, err := l.open(w.ctx, w.options)
		if err == nil {
			return from
		}
		if w.ctx.Err() != nil {
			return nil
		}
		l.failed(w.ctx, err)
		if !transient(err) {
			w.send(errorEvent(err))
			return nil
		}
		if !sleep(w.ctx, l.clock, pause.Step()) {
			return nil
		}
	}
}

// transient reports whether retrying the same request may succeed: the server
// cannot be reached, or is overloaded.
func transient(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return false
	}
	code := answer.Status().Code
	return code == 429 || code >= 500
}

func errorEvent(err error) watch.Event {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		answer = apierrors.NewInternalError(err)
	}
	status := answer.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}
