package manifest

import (
	"io/fs"
	"os"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

// watcher hears of changes in the folders that matter. Without the kernel's
// help it hears nothing, and the source reads the path more often instead.
type watcher struct {
	notify *fsnotify.Watcher // nil if there is none
	set    watchSet
	added  map[string]fs.FileInfo // folders watched, as they were then
	logger logr.Logger
}

func newWatcher(logger logr.Logger) *watcher {
	w := &watcher{added: map[string]fs.FileInfo{}, logger: logger}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "Cannot be told about changed manifests, reading them often instead",
			"remedy", "raise the sysctl fs.inotify.max_user_instances")
		return w
	}
	w.notify = notify
	return w
}

func (w *watcher) close() {
	if w.notify != nil {
		w.notify.Close()
	}
}

// events is where changes arrive; it never does if there is no watcher.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// errors is where lost changes arrive.
func (w *watcher) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

// follow watches the folders of a set from now on. It tells whether there are
// new ones among them, in which something may have changed before.
func (w *watcher) follow(set watchSet) (fresh bool) {
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
	return fresh
}

// add watches a folder. A watch belongs to the folder, not to its path: where
// another folder took its place, that one must be watched anew.
func (w *watcher) add(dir string) bool {
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

func (w *watcher) drop(dir string) {
	if _, ok := w.added[dir]; ok {
		delete(w.added, dir)
		_ = w.notify.Remove(dir) // the kernel drops the watch of a deleted folder itself
	}
}
