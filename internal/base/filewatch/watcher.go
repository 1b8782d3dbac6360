package filewatch

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// maxQuiets bounds how long continuous changes can delay Settle.
const maxQuiets = 10

// Watcher receives changes in the directories that matter, if inotify is
// available. The zero value is blind.
type Watcher struct {
	notify *fsnotify.Watcher // nil if not available
	set    Set
	added  map[string]fs.FileInfo // watched directories, as they were when added
	full   bool                   // the machine has no more watches, which was logged
	logger logr.Logger
}

// New returns a Watcher that watches nothing yet.
func New(logger logr.Logger) *Watcher {
	w := &Watcher{added: map[string]fs.FileInfo{}, logger: logger}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "Cannot watch files for changes, polling them instead",
			"remedy", "raise the sysctl fs.inotify.max_user_instances")
		return w
	}
	w.notify = notify
	return w
}

// Close ends all watches.
func (w *Watcher) Close() {
	if w.notify != nil {
		w.notify.Close()
	}
}

// Blind reports whether the Watcher never receives changes.
func (w *Watcher) Blind() bool { return w.notify == nil }

// Events returns a channel of changes, nil if the Watcher is blind. Not all of
// them matter.
func (w *Watcher) Events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// Errors returns a channel of errors, after which changes may have been lost.
func (w *Watcher) Errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

// Matters reports whether an event is about something in the Set.
func (w *Watcher) Matters(event fsnotify.Event) bool { return w.set.Matters(event.Name) }

// Settle debounces: it waits until there was no change for a while. It returns
// false if the context ended first.
func (w *Watcher) Settle(ctx context.Context, clk clock.Clock, quiet time.Duration) bool {
	return w.settle(ctx, clk, quiet, func(fsnotify.Event) {})
}

// Gather is Settle after a first change. It returns the paths of that change
// and of all others that matter, without duplicates.
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

// Follow watches the directories of a set. It reports whether there are new
// ones, in which something may have changed before.
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

// renew restores watches that ended although the directory exists: fsnotify
// ends a watch when a directory is moved, and it may have been moved back. A
// directory mounted twice is listed only once, and is not new.
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

// add watches a directory. A watch belongs to the inode, not to its path: if
// another directory took its place, that one must be watched.
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
		w.cannotWatch(dir, err)
		return false
	}
	w.added[dir] = info
	return true
}

// cannotWatch logs it; that the machine has no more watches is said once, and what helps.
func (w *Watcher) cannotWatch(dir string, err error) {
	const message = "Cannot watch a directory, reading it from time to time only"
	if errors.Is(err, syscall.ENOSPC) && !w.full {
		w.full = true
		w.logger.Error(err, message, "directory", dir, "remedy", "raise the sysctl fs.inotify.max_user_watches")
		return
	}
	w.logger.V(1).Info(message, "directory", dir, "err", err)
}

func (w *Watcher) drop(dir string) {
	if _, ok := w.added[dir]; ok {
		delete(w.added, dir)
		_ = w.notify.Remove(dir) // the kernel drops the watch of a deleted directory itself
	}
}

// Set selects the changes that matter, by the real path of the directory in
// which they happen.
type Set map[string]*directory

type directory struct {
	all   bool // everything in it that is not hidden
	names map[string]bool
}

func (s Set) at(dir string) *directory {
	f := s[dir]
	if f == nil {
		f = &directory{names: map[string]bool{}}
		s[dir] = f
	}
	return f
}

// Directory selects everything in a directory.
func (s Set) Directory(dir string) { s.at(dir).all = true }

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

// Trail resolves an absolute path link by link. Every component is selected: a
// link, or a directory on the way to one, may be replaced, as in ConfigMap
// volumes, and one that does not exist may appear.
func (s Set) Trail(path string) (real string) {
	dir, rest := split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		s.at(dir).names[name] = true
		step := filepath.Join(dir, name)
		target, err := os.Readlink(step)
		if err != nil {
			dir = step // not a link; it may not exist
			continue
		}
		if links++; links > maxLinks {
			return step
		}
		root, names := split(target)
		if filepath.IsAbs(target) {
			dir = root
		}
		rest = append(names, rest...)
	}
	return dir
}

// split returns where an absolute path begins, / or a volume of Windows, and the names in a path.
func split(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), strings.Split(filepath.ToSlash(path[len(volume):]), "/")
}

// Leaf reports whether a path is selected only as an entry of its directory: it
// is part of no trail, and nothing below it is selected.
func (s Set) Leaf(path string) bool {
	f := s[filepath.Dir(path)]
	return f != nil && f.all && !f.names[filepath.Base(path)] && s[path] == nil
}

// Matters reports whether a path is selected.
func (s Set) Matters(path string) bool {
	f := s[filepath.Dir(path)]
	if f == nil {
		return false
	}
	name := filepath.Base(path)
	return f.names[name] || f.all && !strings.HasPrefix(name, ".")
}
