package manifest

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/filewatch"
	"sluice/internal/model"
	"sluice/internal/source"
)

const (
	// defaultDebounce is how long it must be quiet before a change is read.
	defaultDebounce = 20 * time.Millisecond
	// reread is how often the path is read without a notification of a change, and
	// rereadBlind how often if there are no notifications at all.
	reread, rereadBlind = 10 * time.Second, time.Second
	// maxListings limits how often a path that changes all the time is listed.
	maxListings = 5
	// maxLogged limits the problems that are logged at once.
	maxLogged = 20
)

// Options configures a Source. Path is required.
type Options struct {
	Path     string       // a file or a directory
	Proxy    source.Proxy // that objects are for
	Logger   logr.Logger
	Clock    clock.WithTicker // the real one if nil
	Debounce time.Duration    // 20 ms if 0
	Reload   <-chan struct{}  // requests to read everything now; may be nil

	maxFileSize int64
	reread      time.Duration
}

// Source reads manifests and follows their changes.
type Source struct {
	options  Options
	loader   *loader
	listing  *listing         // the last one, without its entries; nil if it failed
	again    <-chan time.Time // when a file that looks half written is due; nil if there is none
	synced   bool
	problems []Problem     // of the manifests as they are now
	effort   time.Duration // that listing and reading everything took the last time
	read     time.Time     // when that ended
	away     atomic.Pointer[Away]
}

// Away is why the path cannot be read, and since when.
type Away struct {
	Err   error
	Since time.Time
}

// Remedy is what to do about it.
func (*Away) Remedy() string { return "create the file or directory, or make it readable" }

// Away returns why the path cannot be read, nil if it can. It may be called at any time.
func (s *Source) Away() *Away { return s.away.Load() }

// New returns a Source that has not read anything yet.
func New(options Options) *Source {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	options.Debounce = cmp.Or(options.Debounce, defaultDebounce)
	options.maxFileSize = cmp.Or(options.maxFileSize, maxFileSize)
	options.reread = cmp.Or(options.reread, reread)
	return &Source{options: options, loader: newLoader(options.Proxy, options.maxFileSize)}
}

// Run sends what the path holds to the sink and follows it until the context ends.
// The sink is in sync once the path could be read. Run is called once.
func (s *Source) Run(ctx context.Context, sink model.Sink) error {
	watcher := filewatch.New(s.options.Logger)
	defer watcher.Close()
	interval := s.options.reread
	if watcher.Blind() {
		interval = min(interval, rereadBlind)
	}
	ticker := s.options.Clock.NewTicker(interval)
	defer ticker.Stop()

	var missed <-chan time.Time // when everything is due to be read, because changes were missed
	s.pass(watcher, sink, true)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			if s.rest(idleShare) <= 0 {
				s.pass(watcher, sink, false)
			}
		case <-missed:
			missed = nil
			s.pass(watcher, sink, true)
		case <-s.again:
			s.pass(watcher, sink, false)
		case <-s.options.Reload:
			s.pass(watcher, sink, true)
		case event := <-watcher.Events():
			if !watcher.Matters(event) {
				continue
			}
			paths, ok := watcher.Gather(ctx, s.options.Clock, s.options.Debounce, event)
			if !ok {
				return nil
			}
			s.pass(watcher, sink, true, paths...)
		case err := <-watcher.Errors():
			s.options.Logger.V(1).Info("Changes were missed, reading everything", "err", err)
			if wait := s.rest(1); wait > 0 {
				missed = s.options.Clock.After(wait)
			} else {
				s.pass(watcher, sink, true)
			}
		}
	}
}

// idleShare is how many times as long as reading everything takes it is left alone before it
// is read without a reason.
const idleShare = 20

// rest returns how long to wait before everything is read again, so that many files neither
// keep a processor busy nor news of single ones waiting: some times as long as that takes.
func (s *Source) rest(times time.Duration) time.Duration {
	return times*s.effort - s.options.Clock.Since(s.read)
}

// pass reads the path, or of it only the paths that changed if they are known, and
// sends what changed. A pass that was requested is always logged, a periodic one only
// if it found a change.
func (s *Source) pass(watcher *filewatch.Watcher, sink model.Sink, requested bool, paths ...string) {
	content, err := s.load(watcher, paths)
	s.again = nil
	if err != nil {
		s.unreadable(err, sink)
		return
	}
	s.away.Store(nil)
	if wait, ok := s.loader.graceLeft(s.options.Clock.Now()); ok {
		s.again = s.options.Clock.After(wait)
	}
	for _, name := range content.unfinished {
		s.options.Logger.V(1).Info("A manifest looks half written, so its last content stays in force", "file", name, "for", graceTime)
	}
	s.report(content.Problems, sink)
	if len(content.Events) > 0 {
		sink.Update(content.Events...)
	}
	if !s.synced {
		s.synced = true
		sink.Synced()
	}
	for file, kinds := range content.skipped {
		s.options.Logger.V(1).Info("Skipped objects of other kinds", "file", file, "kinds", kinds)
	}
	if requested || content.changed {
		s.options.Logger.Info("Loaded manifests", "path", s.options.Path, "files", content.Files,
			"objects", content.Objects, "changes", len(content.Events), "problems", len(content.Problems), "digest", content.Digest)
	}
}

// load reads the files at the paths that changed, or lists and reads all of them if
// that may not be enough.
func (s *Source) load(watcher *filewatch.Watcher, paths []string) (*Content, error) {
	if s.listing != nil && len(paths) > 0 {
		if entries, gone, ok := s.listing.changed(paths); ok {
			if content := s.loader.some(entries, gone, s.options.Clock.Now()); content != nil {
				return content, nil
			}
		}
	}
	return s.loadAll(watcher)
}

// loadAll lists the files again if a directory was not yet watched when it was
// listed, because changes in between would be lost, and if a file vanished before
// it was read.
func (s *Source) loadAll(watcher *filewatch.Watcher) (*Content, error) {
	s.listing = nil
	began := s.options.Clock.Now()
	defer func() {
		s.read = s.options.Clock.Now()
		s.effort = s.read.Sub(began)
	}()
	for try := 1; ; try++ {
		listing, err := list(s.options.Path)
		if watcher.Follow(listing.watch) && try < maxListings {
			continue
		}
		if err != nil {
			return nil, err
		}
		if content := s.loader.all(listing.entries, s.options.Clock.Now(), try >= maxListings); content != nil {
			listing.entries = nil
			s.listing = listing
			return content, nil
		}
	}
}

// unreadable reports that the path cannot be read. What was loaded from it stays in
// force.
func (s *Source) unreadable(err error, sink model.Sink) {
	away := &Away{err, s.options.Clock.Now()}
	if before := s.away.Load(); before != nil {
		away.Since = before.Since
	}
	s.away.Store(away)
	reason := err.Error()
	if s.synced {
		reason += "; what was loaded before stays in force"
	}
	s.report([]Problem{{File: s.options.Path, Refused: true, Problem: model.Problem{
		Object: model.Object{Kind: "path", Name: s.options.Path},
		Reason: reason,
		Remedy: away.Remedy(),
	}}}, sink)
}

// report sends what was refused to the sink, and logs the problems that are new.
func (s *Source) report(problems []Problem, sink model.Sink) {
	if slices.Equal(s.problems, problems) {
		return
	}
	sink.Update(model.SetInvalid{Problems: Refused(problems)})
	known := make(map[Problem]bool, len(s.problems))
	for _, p := range s.problems {
		known[p] = true
	}
	s.problems = problems
	logged := 0
	for _, p := range problems {
		if known[p] {
			continue
		}
		known[p] = true
		switch logged++; {
		case logged > maxLogged:
		case p.Refused:
			s.options.Logger.Error(nil, "Refused a manifest", p.keysAndValues()...)
		default: // the object is used, and its problems are reported with it
			s.options.Logger.V(1).Info("Left out a part of a manifest", p.keysAndValues()...)
		}
	}
	if logged > maxLogged {
		s.options.Logger.Error(nil, "There are more problems with the manifests", "count", logged-maxLogged)
	}
}
