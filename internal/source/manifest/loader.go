package manifest

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"sluice/internal/model"
)

// Content is what a path holds.
type Content struct {
	Events   []model.Event // what changed since the last time
	Files    int
	Objects  int // objects in force, each once
	Problems []Problem
	Digest   string // as of Digest

	skipped map[string]map[string]int // kinds skipped in files that changed
	changed bool                      // some file did
}

// Load reads a path once. Of Nodes, only nodeName is used.
func Load(path, nodeName string) (*Content, error) {
	l, err := list(path)
	if err != nil {
		return nil, err
	}
	// There is no next time, so it does not matter when this was.
	content, _ := newLoader(nodeName, maxFileSize).load(l, time.Time{}, true)
	return content, nil
}

// loader remembers what the files held, to find out what changed.
type loader struct {
	nodeName string
	limit    int64
	files    map[string]*file
	index    index
	faulty   map[string]bool // files that have problems of their own
	problems []Problem       // all
	digest   sum
	loaded   bool // at least once
}

func newLoader(nodeName string, limit int64) *loader {
	return &loader{nodeName: nodeName, limit: limit, files: map[string]*file{}, index: newIndex(), faulty: map[string]bool{}}
}

// file is what is known of a file.
type file struct {
	stamp   stamp
	settled bool
	sum     sum
	// contents are those in force: of the file itself, or if that was refused
	// the last good ones; nil if there are none.
	contents *contents
	good     bool // nothing of the contents was refused
	problems []Problem
	skipped  map[string]int
	gone     bool // was listed, but could not be found
}

// load reads what changed in a listing and works out the difference. If a file
// that was listed is gone, it does nothing and is not complete, unless it is
// told to make do.
func (l *loader) load(listing *listing, now time.Time, makeDo bool) (content *Content, complete bool) {
	listed := make(map[string]bool, len(listing.entries))
	for i := range listing.entries {
		listed[listing.entries[i].name] = true
	}
	var gone []string
	for name := range l.files {
		if !listed[name] {
			gone = append(gone, name)
		}
	}
	return l.update(listing.entries, gone, now, makeDo)
}

// some is load for those files only that changed, and the names of those that
// are gone. It is not complete either if one of them had a second name when it
// was read last: what was written to it since then is in the other file, too.
func (l *loader) some(entries []entry, gone []string, now time.Time) (content *Content, complete bool) {
	linked := func(name string) bool { return l.files[name] != nil && l.files[name].stamp.links > 1 }
	if slices.ContainsFunc(gone, linked) || slices.ContainsFunc(entries, func(e entry) bool { return linked(e.name) }) {
		return nil, false
	}
	return l.update(entries, gone, now, false)
}

// update takes over what some files are now. The others stay as they are.
func (l *loader) update(entries []entry, gone []string, now time.Time, makeDo bool) (content *Content, complete bool) {
	files := make([]*file, len(entries))
	parallel(len(files), func(i int) {
		e := &entries[i]
		files[i] = l.files[e.name].refresh(e, l.nodeName, l.limit, now)
	})
	if !makeDo && slices.ContainsFunc(files, func(f *file) bool { return f.gone }) {
		return nil, false
	}
	content = &Content{changed: !l.loaded}
	l.loaded = true
	problems := false
	for i, f := range files {
		problems = l.put(content, entries[i].name, f) || problems
	}
	for _, name := range gone {
		problems = l.put(content, name, nil) || problems
	}
	events, repeated := l.index.merge()
	if problems || repeated {
		l.problems = l.allProblems()
	}
	content.Events, content.Problems = events, l.problems
	content.Files, content.Objects, content.Digest = len(l.files), len(l.index.objects), l.digest.String()
	return content, true
}

// put takes over what a file is now, nil if it is gone, and tells whether its
// problems changed.
func (l *loader) put(content *Content, name string, next *file) (problems bool) {
	old := l.files[name]
	if next == nil {
		delete(l.files, name)
	} else {
		l.files[name] = next
	}
	if old.same(next) {
		return false
	}
	content.changed = true
	var before, now file
	if old != nil {
		before = *old
		l.digest.toggle(name, old.sum)
	}
	if next != nil {
		now = *next
		l.digest.toggle(name, next.sum)
		content.skip(name, next.skipped)
	}
	l.index.replace(before.contents, now.contents)
	delete(l.faulty, name)
	if len(now.problems) > 0 {
		l.faulty[name] = true
	}
	return !slices.Equal(before.problems, now.problems)
}

// same tells whether nothing came of reading a file again.
func (f *file) same(o *file) bool {
	if f == nil || o == nil {
		return f == o
	}
	return f.sum == o.sum && f.contents == o.contents && slices.Equal(f.problems, o.problems)
}

// allProblems are those of the files, by name, and those between files.
func (l *loader) allProblems() []Problem {
	var all []Problem
	for _, name := range slices.Sorted(maps.Keys(l.faulty)) {
		all = append(all, l.files[name].problems...)
	}
	return append(all, l.index.problems()...)
}

func (c *Content) skip(file string, kinds map[string]int) {
	if len(kinds) == 0 {
		return
	}
	if c.skipped == nil {
		c.skipped = map[string]map[string]int{}
	}
	c.skipped[file] = kinds
}

// refresh returns what is known of a file now. It does not read the file if
// its stamp says that it did not change.
func (f *file) refresh(e *entry, nodeName string, limit int64, now time.Time) *file {
	var next file
	if e.err == nil && e.data == nil {
		next.stamp = stampOf(e.info)
		next.settled = next.stamp.settled(now)
	}
	if f != nil && f.settled && f.stamp == next.stamp {
		return f
	}
	data, sum, err := e.read(limit)
	if f != nil && err == nil && f.sum == sum {
		same := *f
		same.stamp, same.settled = next.stamp, next.settled
		return &same
	}
	next.sum = sum
	if err != nil {
		next.settled = false // it may be readable next time
		next.problems = []Problem{e.problem(err)}
		next.gone = e.err == nil && errors.Is(err, fs.ErrNotExist)
		next.keep(f)
		return &next
	}
	var last *contents
	if f != nil {
		last = f.contents
	}
	d := decodeFile(e.name, data, nodeName, last)
	next.problems, next.skipped = d.problems, d.skipped
	next.contents, next.good = &contents{file: e.name, objects: slices.Clip(d.objects), traces: d.traces}, !d.refused()
	if !next.good {
		next.keep(f)
	}
	return &next
}

// keep lets the last good contents stay in force, if there were any.
func (f *file) keep(last *file) {
	if last != nil && last.good {
		f.contents, f.good = last.contents, true
	}
}
