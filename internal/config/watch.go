package config

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/filewatch"
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
}

// Watch follows the configuration file until the context ends, starting with the
// settings in force. If the file is missing or invalid, all its errors are logged,
// and the settings stay in force.
func (f *Flags) Watch(ctx context.Context, inForce *Settings, options WatchOptions) error {
	if f.ConfigFile == "" {
		<-ctx.Done()
		return nil
	}
	path, err := filepath.Abs(f.ConfigFile)
	if err != nil {
		return fmt.Errorf("find the configuration file: %w", err)
	}
	watcher := filewatch.New(options.Logger)
	defer watcher.Close()
	interval := reread
	if watcher.Blind() {
		interval = rereadBlind
	}
	ticker := options.Clock.NewTicker(interval)
	defer ticker.Stop()

	follower := &follower{flags: f, path: path, asked: inForce, inForce: inForce, warned: inForce.Warnings, options: options}
	follower.read(watcher)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-watcher.Errors(): // changes were missed
		case <-options.Reload:
			follower.reread(watcher)
			continue
		case event := <-watcher.Events():
			if !watcher.Matters(event) {
				continue
			}
			if !watcher.Settle(ctx, options.Clock, settleTime) {
				return nil
			}
		}
		follower.read(watcher)
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

// read reads the file and applies it.
func (f *follower) read(watcher *filewatch.Watcher) {
	for range maxTrails {
		set := filewatch.Set{}
		set.Trail(f.path)
		if !watcher.Follow(set) {
			break
		}
	}
	update, err := f.update()
	if err != nil {
		f.refuse(err)
		f.note(FileState{Path: f.path, Refused: problemsIn(err), Since: f.since, Restart: f.noted.Restart, Blocked: f.noted.Blocked})
		return
	}
	defer f.note(FileState{Path: f.path, Warnings: update.Asked.Warnings, Restart: update.Restart, Blocked: problemsIn(update.Blocked)})
	if f.refused != "" {
		f.refused = ""
		f.options.Logger.Info("The configuration file is valid again", "file", f.path)
	}
	f.warn(update.Asked)
	if same(f.asked.Configuration, update.Asked.Configuration) {
		return
	}
	f.options.Logger.Info("The configuration file changed", "file", f.path)
	f.asked, f.inForce = update.Asked, update.InForce
	f.options.Changed(update)
}

// reread reads the file, and logs again what was logged before.
func (f *follower) reread(watcher *filewatch.Watcher) {
	before := f.asked
	f.refused = ""
	f.read(watcher)
	if f.refused == "" && f.asked == before {
		f.options.Logger.Info("The configuration file is unchanged", "file", f.path)
	}
}

func (f *follower) update() (*Update, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration file: %w", err)
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

// refuse logs an error once.
func (f *follower) refuse(err error) {
	if err.Error() == f.refused {
		return
	}
	f.refused, f.since = err.Error(), f.options.Clock.Now()
	f.options.Logger.Error(err, "The new configuration file is invalid, the previous one stays in force", "file", f.path)
}

// same reports whether two configurations are equal.
func same(a, b *Configuration) bool {
	aText, aErr := Encode(a)
	bText, bErr := Encode(b)
	return aErr == nil && bErr == nil && bytes.Equal(aText, bText)
}
