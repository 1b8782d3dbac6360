package manifest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/model"
	"sluice/internal/source"
)

// Content holds what was loaded from a path.
type Content struct {
	Events   []model.Event // what changed since the last time
	Files    int
	Objects  int // objects in force, each once
	Problems []Problem
	Digest   string // of the names and contents of all files

	skipped    map[string][]string // kinds skipped in files that changed
	changed    bool                // some file did
	unfinished []string            // files that look half written now, and did not before
}

// Load reads a path once, for a proxy.
func Load(path string, proxy source.Proxy) (*Content, error) {
	l, err := list(path)
	if err != nil {
		return nil, err
	}
	// Nothing is read a second time, so the time does not matter.
	return newLoader(proxy, maxFileSize).all(l.entries, time.Time{}, true), nil
}

// loader remembers what the files held, to find out what changed.
type loader struct {
	proxy   source.Proxy
	limit   int64
	files   map[string]*file
	faulty  map[string]bool // files that have problems of their own
	awaited map[string]bool // files that look half written
	objects objects
	digest  sum
}

func newLoader(proxy source.Proxy, limit int64) *loader {
	return &loader{proxy: proxy, limit: limit, files: map[string]*file{}, faulty: map[string]bool{}, awaited: map[string]bool{}, objects: newObjects()}
}

// all loads all files that there are.
func (l *loader) all(entries []entry, now time.Time, final bool) *Content {
	listed := make(map[string]bool, len(entries))
	for i := range entries {
		listed[entries[i].name] = true
	}
	var gone []string
	for name := range l.files {
		if !listed[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return l.load(entries, gone, now, final)
}

// some loads files that changed. It returns nil if one of them had a second name when
// it was read: what was written to it since is in the other file, too.
func (l *loader) some(entries []entry, gone []string, now time.Time) *Content {
	linked := func(name string) bool { return l.files[name] != nil && l.files[name].id.links > 1 }
	if slices.ContainsFunc(gone, linked) || slices.ContainsFunc(entries, func(e entry) bool { return linked(e.name) }) {
		return nil
	}
	return l.load(entries, gone, now, false)
}

// load reads those of some files that changed and drops those that are gone; the
// other files stay as they are. If a file vanished since it was listed, load does
// nothing and returns nil, unless this is the final try.
func (l *loader) load(entries []entry, gone []string, now time.Time, final bool) *Content {
	read := make([]*file, len(entries))
	parallel(len(entries), func(i int) {
		read[i] = l.files[entries[i].name].refresh(&entries[i], l.proxy, l.limit, now)
	})
	if !final && slices.ContainsFunc(read, func(f *file) bool { return f.vanished }) {
		return nil
	}
	content := &Content{skipped: map[string][]string{}}
	for i, f := range read {
		l.replace(content, entries[i].name, f)
		l.await(content, entries[i].name, f)
	}
	for _, name := range gone {
		l.replace(content, name, nil)
		delete(l.awaited, name)
	}
	content.Events = l.objects.settle(now)
	content.Files, content.Objects, content.Digest = len(l.files), len(l.objects.all), l.digest.String()
	content.Problems = l.problems()
	return content
}

// replace notes what a file is now, nil if it is gone.
func (l *loader) replace(content *Content, name string, next *file) {
	old := l.files[name]
	if old == next {
		return
	}
	content.changed = true
	delete(l.files, name)
	delete(l.faulty, name)
	var before, now []*object
	if old != nil {
		before = old.objects
		l.digest.toggle(name, old.sum)
	}
	if next != nil {
		now = next.objects
		l.files[name] = next
		l.digest.toggle(name, next.sum)
		if len(next.problems) > 0 {
			l.faulty[name] = true
		}
		if len(next.skipped) > 0 {
			content.skipped[name] = slices.Compact(slices.Sorted(slices.Values(next.skipped)))
		}
	}
	l.objects.replace(before, now)
}

// await notes whether a file has a newer content that looks half written.
func (l *loader) await(content *Content, name string, f *file) {
	switch {
	case f.since.IsZero():
		delete(l.awaited, name)
	case !l.awaited[name]:
		l.awaited[name] = true
		content.unfinished = append(content.unfinished, name)
	}
}

// graceLeft returns how long it takes until a file that looks half written is used as it is,
// if there is one.
func (l *loader) graceLeft(now time.Time) (shortest time.Duration, ok bool) {
	for name := range l.awaited {
		left := graceTime - now.Sub(l.files[name].since)
		if !ok || left < shortest {
			shortest, ok = left, true
		}
	}
	return shortest, ok
}

// maxProblems is how many problems are reported at a time.
const maxProblems = 1000

// problems returns those of the files, by name, and those between files.
func (l *loader) problems() (all []Problem) {
	total := 0
	for name := range l.faulty {
		total += len(l.files[name].problems)
	}
	for _, name := range slices.Sorted(maps.Keys(l.faulty)) {
		if all = append(all, l.files[name].problems...); len(all) > maxProblems {
			break
		}
	}
	unused := l.objects.unused()
	total += len(unused)
	for _, o := range unused[:min(len(unused), max(0, maxProblems-len(all)))] {
		all = append(all, l.objects.duplicate(o))
	}
	if len(all) > maxProblems {
		all = all[:maxProblems]
	}
	if more := total - len(all); more > 0 {
		all = append(all, Problem{File: all[len(all)-1].File, Refused: true, Problem: model.Problem{
			Object: model.Object{Kind: "manifests"}, Reason: fmt.Sprintf("there are %d more problems", more), Remedy: "correct those that are listed, and the others will be",
		}})
	}
	return all
}

// parallel calls do for every i below n, on as many processors as there are.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}
