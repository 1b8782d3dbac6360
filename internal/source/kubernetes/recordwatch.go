package kubernetes

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// recordWatch passes on the events of another watch, converted.
type recordWatch struct {
	from    watch.Interface
	convert func(watch.Event) watch.Event
	result  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

func newRecordWatch(from watch.Interface, convert func(watch.Event) watch.Event) *recordWatch {
	w := &recordWatch{from: from, convert: convert, result: make(chan watch.Event), stopped: make(chan struct{})}
	go w.pass()
	return w
}

// pass ends when the other watch does, or when nobody listens any more.
func (w *recordWatch) pass() {
	defer close(w.result)
	defer w.from.Stop()
	for {
		select {
		case <-w.stopped:
			return
		case event, ok := <-w.from.ResultChan():
			if !ok {
				return
			}
			select {
			case w.result <- w.convert(event):
			case <-w.stopped:
				return
			}
		}
	}
}

// ResultChan is where the events come out.
func (w *recordWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop ends the watch. It may be called more than once.
func (w *recordWatch) Stop() { w.stop.Do(func() { close(w.stopped) }) }
