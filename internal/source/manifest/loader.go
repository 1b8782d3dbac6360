package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
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
	known    map[key]model.Event // what the sink was told
	content  *Content            // of the last time
}

func newLoader(nodeName string, limit int64) *loader {
	return &loader{nodeName: nodeName, limit: limit, files: map[string]*file{}, known: map[key]model.Event{}}
}

// file is what is known of a file.
type file struct {
	stamp   stamp
	settled bool
	sum     sum
	// objects are those in force: of the content itself, or if that was refused
	// of the last good one.
	objects  []object
	good     bool // objects are those of a content without refusals
	problems []Problem
	skipped  map[string]int
	gone     bool // was listed, but could not be found
}

// load reads what changed and works out the difference. If a file that was
// listed is gone, it does nothing and is not complete, unless it is told to
// make do.
func (l *loader) load(listing *listing, now time.Time, makeDo bool) (content *Content, complete bool) {
	files := make([]*file, len(listing.entries))
	parallel(len(files), func(i int) {
		e := &listing.entries[i]
		files[i] = l.files[e.name].refresh(e, l.nodeName, l.limit, now)
	})
	if !makeDo && slices.ContainsFunc(files, func(f *file) bool { return f.gone }) {
		return nil, false
	}
	content = &Content{Files: len(files), changed: l.content == nil || len(files) != len(l.files)}
	next := make(map[string]*file, len(files))
	digest := sha256.New()
	for i, f := range files {
		name := listing.entries[i].name
		addToDigest(digest, name, f.sum)
		next[name] = f
		if old := l.files[name]; old == nil || old.sum != f.sum || !slices.Equal(old.problems, f.problems) {
			content.changed = true
			content.skip(name, f.skipped)
		}
		content.Problems = append(content.Problems, f.problems...)
	}
	content.Digest = hex.EncodeToString(digest.Sum(nil))
	l.files = next
	if content.changed {
		l.merge(content, listing.entries, files)
	} else {
		content.Objects, content.Problems = l.content.Objects, l.content.Problems
	}
	l.content = content
	return content, true
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
	d := decodeFile(e.name, data, nodeName)
	next.problems, next.skipped = d.problems, d.skipped
	next.objects, next.good = slices.Clip(d.objects), !d.refused()
	if !next.good {
		next.keep(f)
	}
	return &next
}

// keep lets the last good content stay in force, if there was one.
func (f *file) keep(last *file) {
	if last != nil && last.good {
		f.objects, f.good = last.objects, true
	}
}
