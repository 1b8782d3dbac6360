package manifest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/filewatch"
	"sluice/internal/model"
)

const (
	// defaultDebounce is how long it must be quiet before a change is read.
	defaultDebounce = 20 * time.Millisecond
	// reread is how often the path is read without being told of a change, and
	// rereadBlind how often if nobody can tell.
	reread      = 10 * time.Second
	rereadBlind = time.Second
	// maxListings bounds how often a path that changes all the time is listed
	// before it is taken as it is.
	maxListings = 5
	// maxLogged bounds the problems that are logged at once.
	maxLogged = 20
)

// Options are what a Source needs. Path is required.
type Options struct {
	Path     string // a file or a folder
	NodeName string // the one Node that is used
	Logger   logr.Logger
	Clock    clock.WithTicker // the real one if nil
	Debounce time.Duration    // 20 ms if 0
	// Reload asks for everything to be read now; nil if nobody does.
	Reload <-chan struct{}

	maxFileSize int64
	reread      time.Duration
}

// Source reads manifests and follows their changes.
type Source struct {
	options Options
	loader  *loader
	listing *listing // the last one, without its entries; nil if it failed
	synced  bool
	logged  map[Problem]bool
	// problems are what is wrong with the manifests now.
	problems []Problem
}

// New returns a Source that has not read anything yet.
func New(options Options) *Source {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Debounce == 0 {
		options.Debounce = defaultDebounce
	}
	if options.maxFileSize == 0 {
		options.maxFileSize = maxFileSize
	}
	if options.reread == 0 {
		options.reread = reread
	}
	return &Source{options: options, loader: newLoader(options.NodeName, options.maxFileSize)}
}

// Run hands what the path holds to the sink and follows it until the context
// ends. The sink is in sync once the path could be read: while there is none,
// nothing is known of what should be there. Run is called once.
func (s *Source) Run(ctx context.Context, sink model.Sink) error {
	watcher := filewatch.New(s.options.Logger)
	defer watcher.Close()
	interval := s.options.reread
	if watcher.Blind() {
		interval = min(interval, rereadBlind)
	}
	ticker := s.options.Clock.NewTicker(interval)
	defer ticker.Stop()

	s.pass(watcher, sink, true)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
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
			s.pass(watcher, sink, true)
		}
	}
}

// pass reads the path and hands over what changed. A pass that was asked for
// by a change is always logged, one that was due anyway only if it found one.
// If it is told which paths changed, it looks at others only if it must.
func (s *Source) pass(watcher *filewatch.Watcher, sink model.Sink, asked bool, paths ...string) {
	content, err := s.load(watcher, paths)
	if err != nil {
		s.unreadable(err, sink)
		return
	}
	s.report(content.Problems, sink)
	if len(content.Events) > 0 {
		sink.Update(content.Events...)
	}
	if !s.synced {
		s.synced = true
		sink.Synced()
	}
	s.logSkipped(content)
	if asked || content.changed {
		s.options.Logger.Info("Loaded manifests", "path", s.options.Path, "files", content.Files,
			"objects", content.Objects, "changes", len(content.Events), "problems", len(content.Problems), "digest", content.Digest)
	}
}

// load reads the files that changed, if it is known which, or lists and reads
// all of them.
func (s *Source) load(watcher *filewatch.Watcher, paths []string) (*Content, error) {
	if s.listing != nil && len(paths) > 0 {
		if entries, gone, ok := s.listing.again(paths); ok {
			if content, complete := s.loader.some(entries, gone, s.options.Clock.Now()); complete {
				return content, nil
			}
		}
	}
	return s.loadAll(watcher)
}

// loadAll lists and reads the files. It lists them again if a folder was not yet
// watched when it was listed, for changes in between would be lost, and if a
// file was gone when it came to reading it.
func (s *Source) loadAll(watcher *filewatch.Watcher) (*Content, error) {
	s.listing = nil
	for try := 1; ; try++ {
		listing, err := list(s.options.Path)
		if watcher.Follow(listing.watch) && try < maxListings {
			continue
		}
		if err != nil {
			return nil, err
		}
		content, complete := s.loader.load(listing, s.options.Clock.Now(), try >= maxListings)
		if complete {
			listing.entries = nil
			s.listing = listing
			return content, nil
		}
	}
}

// unreadable reports that the path cannot be read. What was loaded from it
// stays in force.
func (s *Source) unreadable(err error, sink model.Sink) {
	s.report([]Problem{{File: s.options.Path, Refused: true, Problem: model.Problem{
		Object: "path " + s.options.Path,
		Reason: fmt.Sprintf("%v; what was loaded before stays in force", err),
		Remedy: "create the file or folder, or make it readable",
	}}}, sink)
}

// report hands over what was refused, for all who tell how the proxy is, and logs
// the problems that were not there before.
func (s *Source) report(problems []Problem, sink model.Sink) {
	if slices.Equal(s.problems, problems) {
		return
	}
	s.problems = problems
	sink.Update(model.SetRefused{Problems: refused(problems)})

	logged := make(map[Problem]bool, len(problems))
	fresh := 0
	for _, p := range problems {
		if !s.logged[p] && !logged[p] {
			if fresh++; fresh <= maxLogged {
				s.log(p)
			}
		}
		logged[p] = true
	}
	s.logged = logged
	if fresh > maxLogged {
		s.options.Logger.Error(nil, "There are more problems with the manifests", "count", fresh-maxLogged)
	}
}

// log tells of a document that was refused. What is left out of an object that
// is used goes with the object, and is told by whoever takes it.
func (s *Source) log(p Problem) {
	if p.Refused {
		s.options.Logger.Error(nil, "Refused a manifest", p.keysAndValues()...)
		return
	}
	s.options.Logger.V(1).Info("Left out a part of a manifest", p.keysAndValues()...)
}

func (s *Source) logSkipped(content *Content) {
	if logger := s.options.Logger.V(1); logger.Enabled() {
		for file, kinds := range content.skipped {
			logger.Info("Skipped objects of other kinds", "file", file, "kinds", kinds)
		}
	}
}
