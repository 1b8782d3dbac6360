package filewatch

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// maxQuiets bounds how long changes without a pause can put Settle off.
const maxQuiets = 10

// Watcher hears of changes in the folders that matter. Without the kernel's
// help it hears nothing; the zero value never has it.
type Watcher struct {
	notify *fsnotify.Watcher // nil if there is none
	set    Set
	added  map[string]fs.FileInfo // folders watched, as they were then
	logger logr.Logger
}

// New returns a Watcher that follows nothing yet.
func New(logger logr.Logger) *Watcher {
	w := &Watcher{added: map[string]fs.FileInfo{}, logger: logger}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "Cannot be told about changed files, reading them often instead",
			"remedy", "raise the sysctl fs.inotify.max_user_instances")
		return w
	}
	w.notify = notify
	return w
}

// Close ends the watch.
func (w *Watcher) Close() {
	if w.notify != nil {
		w.notify.Close()
	}
}

// Blind tells whether the Watcher never hears of anything.
func (w *Watcher) Blind() bool { return w.notify == nil }

// Events is where changes arrive; it never does if the Watcher is blind. Not
// all of them matter.
func (w *Watcher) Events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// Errors is where lost changes arrive.
func (w *Watcher) Errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

// Matters tells whether an event is about something in the Set.
func (w *Watcher) Matters(event fsnotify.Event) bool { return w.set.Matters(event.Name) }

// Settle waits until no change came for a while. It answers false if the
// context ended before.
func (w *Watcher) Settle(ctx context.Context, clk clock.Clock, quiet time.Duration) bool {
	return w.settle(ctx, clk, quiet, func(fsnotify.Event) {})
}

// Gather is Settle after a first change. It returns the paths of that and of
// all others that came and matter, each once.
func (w *Watcher) Gather(ctx context.Context, clk clock.Clock, quiet time.Duration, first fsnotify.Event) (paths []string, ok bool) {
	changed := map[string]bool{first.Name: true}
	ok = w.settle(ctx, clk, quiet, func(event fsnotify.Event) { changed[event.Name] = true })
	return slices.Sorted(maps.Keys(changed)), ok
}

func (w *Watcher) settle(ctx context.Context, clk clock.Clock, quiet time.Duration, heard func(fsnotify.Event)) bool {
	pause := clk.NewTimer(quiet)
	defer pause.Stop()
	last := clk.NewTimer(maxQuiets * quiet)
	defer last.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-pause.C():
			return true
		case <-last.C():
			return true
		case event := <-w.Events():
			if w.Matters(event) {
				heard(event)
				pause.Reset(quiet)
			}
		}
	}
}

// Follow watches the folders of a set from now on. It tells whether there are
// new ones among them, in which something may have changed before.
func (w *Watcher) Follow(set Set) (fresh bool) {
	w.set = set
	if w.notify == nil {
		return false
	}
	for dir := range w.added {
		if set[dir] == nil {
			w.drop(dir)
		}
	}
	for dir := range set {
		if w.add(dir) {
			fresh = true
		}
	}
	return w.renew() || fresh
}

// renew watches the folders again whose watch ended although they are there:
// fsnotify ends it when a folder is moved, and it may have been moved back. A
// folder mounted twice is listed once only, and is nothing new.
func (w *Watcher) renew() (fresh bool) {
	listed := w.notify.WatchList()
	slices.Sort(listed)
	for dir := range w.added {
		if _, ok := slices.BinarySearch(listed, dir); !ok && w.notify.Add(dir) == nil {
			fresh = fresh || slices.Contains(w.notify.WatchList(), dir)
		}
	}
	return fresh
}

// add watches a folder. A watch belongs to the folder, not to its path: where
// another folder took its place, that one must be watched anew.
func (w *Watcher) add(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		w.drop(dir)
		return false
	}
	if old := w.added[dir]; old != nil {
		if os.SameFile(old, info) {
			return false
		}
		w.drop(dir)
	}
	if err := w.notify.Add(dir); err != nil {
		w.logger.V(1).Info("Cannot watch a folder, reading it from time to time only", "folder", dir, "err", err)
		return false
	}
	w.added[dir] = info
	return true
}

func (w *Watcher) drop(dir string) {
	if _, ok := w.added[dir]; ok {
		delete(w.added, dir)
		_ = w.notify.Remove(dir) // the kernel drops the watch of a deleted folder itself
	}
}
