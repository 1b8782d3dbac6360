package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/filewatch"
	"sluice/internal/model"
)

const (
	// settleTime is how long no change must occur before the file is read, because a
	// file that is being written makes several.
	settleTime = 100 * time.Millisecond
	// reread is how often the file is read without a notification, and rereadBlind how
	// often if there are no notifications.
	reread      = 30 * time.Second
	rereadBlind = 5 * time.Second
	// hangsAfter is how long reading may take before that is reported.
	hangsAfter = 10 * time.Second
	// maxTrails bounds how often the path is resolved again while it keeps changing.
	maxTrails = 5
)

// WatchOptions configures Watch.
type WatchOptions struct {
	Logger logr.Logger
	Clock  clock.WithTicker
	// Reload requests that the file be read now and the result be logged in any case.
	// It may be nil.
	Reload <-chan struct{}
	// Changed is called with each new configuration, but not with an invalid or an
	// unchanged one.
	Changed func(*Update)
	// Noted is called whenever what should be known about the file has changed. It
	// may be nil.
	Noted func(FileState)

	read func(path string) ([]byte, error) // nil for that of files
}

// errHangs is why a file is not used although nothing is wrong with it.
var errHangs = fmt.Errorf("it could not be read within %v: its file system does not answer", hangsAfter)

// Watch follows the configuration file until the context ends, starting with the
// settings in force. If the file is missing or invalid, all its errors are logged,
// and the settings stay in force. Watch returns when the context ends even if the
// file system of the file hangs.
func (f *Flags) Watch(ctx context.Context, inForce *Settings, options WatchOptions) error {
	if f.ConfigFile == "" {
		<-ctx.Done()
		return nil
	}
	path, err := filepath.Abs(f.ConfigFile)
	if err != nil {
		return fmt.Errorf("find the configuration file: %w", err)
	}
	if options.read == nil {
		options.read = readFile
	}
	follower := &follower{flags: f, path: path, asked: inForce, inForce: inForce, warned: inForce.Warnings, options: options}
	ended := make(chan struct{})
	go func() { defer close(ended); follower.run(ctx) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}

// run follows the file until the context ends.
func (f *follower) run(ctx context.Context) {
	options := &f.options
	watcher := filewatch.New(options.Logger)
	defer watcher.Close()
	interval := reread
	if watcher.Blind() {
		interval = rereadBlind
	}
	ticker := options.Clock.NewTicker(interval)
	defer ticker.Stop()

	f.read(ctx, watcher)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-watcher.Errors(): // changes were missed
		case <-options.Reload:
			f.reread(ctx, watcher)
			continue
		case event := <-watcher.Events():
			if !watcher.Matters(event) {
				continue
			}
			if !watcher.Settle(ctx, options.Clock, settleTime) {
				return
			}
		}
		f.read(ctx, watcher)
	}
}

// follower tracks the configuration file.
type follower struct {
	flags   *Flags
	path    string
	asked   *Settings       // what the last valid file says
	inForce *Settings       // what applies in this process
	warned  []model.Problem // the warnings that were logged
	refused string          // the error when the file was last read
	since   time.Time       // of the error
	noted   FileState
	options WatchOptions
}

// read reads the file and applies it, unless the context ended meanwhile.
func (f *follower) read(ctx context.Context, watcher *filewatch.Watcher) {
	done := f.reportHang()
	update, err := f.update(watcher)
	if done(); ctx.Err() != nil {
		return
	}
	if err != nil {
		f.refuse(err)
		return
	}
	defer f.note(FileState{Path: f.path, Warnings: update.Asked.Warnings, Restart: update.Restart, Blocked: problemsIn(update.Blocked)})
	if f.refused != "" {
		f.refused = ""
		f.options.Logger.Info("The configuration file is valid again", "file", f.path)
	}
	f.warn(update.Asked)
	if same(f.asked.Configuration, update.Asked.Configuration) && maps.Equal(f.asked.Own, update.Asked.Own) {
		return
	}
	f.options.Logger.Info("The configuration file changed", "file", f.path)
	f.asked, f.inForce = update.Asked, update.InForce
	f.options.Changed(update)
}

// reread reads the file, and logs again what was logged before.
func (f *follower) reread(ctx context.Context, watcher *filewatch.Watcher) {
	before := f.asked
	f.refused = ""
	f.read(ctx, watcher)
	if f.refused == "" && f.asked == before && ctx.Err() == nil {
		f.options.Logger.Info("The configuration file is unchanged", "file", f.path)
	}
}

// reportHang reports that the file cannot be read if it takes too long, until done is called.
func (f *follower) reportHang() (done func()) {
	timer := f.options.Clock.NewTimer(hangsAfter)
	read, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-read:
		case <-timer.C():
			f.refuse(fmt.Errorf("--config %s: %w", f.path, errHangs))
		}
	}()
	return func() {
		timer.Stop()
		close(read)
		<-ended
	}
}

// update follows the links to the file and reads it.
func (f *follower) update(watcher *filewatch.Watcher) (*Update, error) {
	for range maxTrails {
		set := filewatch.Set{}
		set.Trail(f.path)
		if !watcher.Follow(set) {
			break
		}
	}
	data, err := f.options.read(f.path)
	if err != nil {
		return nil, err
	}
	return f.flags.Update(data, f.inForce)
}

// warn logs new warnings, such as unknown fields. A file that differs only in those
// is not a change.
func (f *follower) warn(s *Settings) {
	if slices.Equal(f.warned, s.Warnings) {
		return
	}
	f.warned = s.Warnings
	s.Report(f.options.Logger)
}

// note passes on what should be known about the file.
func (f *follower) note(s FileState) {
	if f.options.Noted != nil && !reflect.DeepEqual(f.noted, s) {
		f.options.Noted(s)
	}
	f.noted = s
}

// refuse logs an error once, and passes it on.
func (f *follower) refuse(err error) {
	if err.Error() != f.refused {
		f.refused, f.since = err.Error(), f.options.Clock.Now()
		f.options.Logger.Error(err, "The new configuration file is invalid, the previous one stays in force", "file", f.path)
	}
	f.note(FileState{Path: f.path, Refused: problemsIn(err), Since: f.since, Restart: f.noted.Restart, Blocked: f.noted.Blocked})
}

func same(a, b *Configuration) bool {
	aText, aErr := Encode(a)
	bText, bErr := Encode(b)
	return aErr == nil && bErr == nil && bytes.Equal(aText, bText)
}

// FileState is what an administrator should know about the configuration file of a
// running proxy.
type FileState struct {
	Path string
	// Refused is why the file as it is now is not used, since when. What it said
	// before stays in force.
	Refused []model.Problem
	Since   time.Time
	// Warnings are those of the file, such as unknown fields.
	Warnings []model.Problem
	// Restart are the changes that wait for a restart, and Blocked is why all of them do.
	Restart []Change
	Blocked []model.Problem
}

func problemsIn(err error) []model.Problem {
	var list Errors
	switch {
	case err == nil:
		return nil
	case errors.As(err, &list):
		return list
	}
	return []model.Problem{problem("", err.Error(), "correct the file, or put back the one before")}
}

// Advisories returns what is wrong with the file, each problem with its remedy.
func (s *FileState) Advisories() []model.Problem {
	var out []model.Problem
	for _, p := range s.Refused {
		p.Reason = fmt.Sprintf("%s; since %s the file is refused, and what it said before stays in force", p.Reason, s.Since.UTC().Format(time.DateTime+" UTC"))
		out = append(out, s.named(p))
	}
	for _, p := range s.Warnings {
		out = append(out, s.named(p))
	}
	return out
}

// Waiting returns what waits for a restart of the proxy.
func (s *FileState) Waiting() []model.Problem {
	var out []model.Problem
	for _, p := range s.Blocked {
		p.Reason = "no change in the file is applied before a restart, because it is invalid in the current mode: " + p.Reason
		p.Remedy = "restart the proxy"
		out = append(out, s.named(p))
	}
	for _, c := range s.Restart {
		out = append(out, s.named(problem(c.Field, fmt.Sprintf("it waits for a restart to change from %s to %s: %s", c.Old, c.New, c.Restart),
			"restart the proxy, or undo the change")))
	}
	return out
}

func (s *FileState) named(p model.Problem) model.Problem {
	if s.Path != "" {
		p.Object = model.Object{Kind: "Configuration file", Name: s.Path}
	}
	return p
}
