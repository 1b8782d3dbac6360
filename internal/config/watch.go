package config

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/filewatch"
	"sluice/internal/model"
)

const (
	// settleTime is how long it must be quiet before a change is read, as a
	// file that is being written makes several.
	settleTime = 100 * time.Millisecond
	// reread is how often the file is read without being told of a change, and
	// rereadBlind how often if nobody can tell.
	reread      = 30 * time.Second
	rereadBlind = 5 * time.Second
	// maxTrails bounds how often the way to the file is looked up anew while it
	// changes all the time.
	maxTrails = 5
)

// WatchOptions are what Watch needs.
type WatchOptions struct {
	Logger logr.Logger
	Clock  clock.WithTicker
	// Reload asks for the file to be read now, and for a word on it in any case; nil
	// if nobody does.
	Reload <-chan struct{}
	// Changed is told of each new configuration. It is never called for one
	// that is wrong, nor for one that says the same as that before.
	Changed func(*Update)
}

// Watch follows the configuration file until the context ends. It begins with
// what is in force. A file that is wrong, or gone, is logged with all that is
// wrong with it, and what was in force stays so.
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

	follower := &follower{flags: f, path: path, asked: inForce, inForce: inForce, told: inForce.Warnings, options: options}
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

// follower knows what the file said when it was last sound.
type follower struct {
	flags   *Flags
	path    string
	asked   *Settings       // what the file says
	inForce *Settings       // what of that holds in this process
	told    []model.Problem // the warnings about the file
	refused string          // what was wrong when it was read last
	options WatchOptions
}

// read takes the file as it is now.
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
		return
	}
	if f.refused != "" {
		f.refused = ""
		f.options.Logger.Info("The configuration file is sound again", "file", f.path)
	}
	f.warn(update.Asked)
	if same(f.asked.Configuration, update.Asked.Configuration) {
		return
	}
	f.options.Logger.Info("The configuration file changed", "file", f.path)
	f.asked, f.inForce = update.Asked, update.InForce
	f.options.Changed(update)
}

// reread takes the file as it is now, and tells also what was told before.
func (f *follower) reread(watcher *filewatch.Watcher) {
	before := f.asked
	f.refused = ""
	f.read(watcher)
	if f.refused == "" && f.asked == before {
		f.options.Logger.Info("The configuration file says the same as before", "file", f.path)
	}
}

func (f *follower) update() (*Update, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration file: %w", err)
	}
	return f.flags.Update(data, f.inForce)
}

// warn tells once of what the administrator may not have meant, such as fields
// that are not known: a file that has only those new is no change.
func (f *follower) warn(s *Settings) {
	if slices.Equal(f.told, s.Warnings) {
		return
	}
	f.told = s.Warnings
	s.Report(f.options.Logger)
}

// refuse tells once of what is wrong.
func (f *follower) refuse(err error) {
	if err.Error() == f.refused {
		return
	}
	f.refused = err.Error()
	f.options.Logger.Error(err, "The new configuration file is wrong, the configuration before it stays in force", "file", f.path)
}

// same tells whether two configurations say the same.
func same(a, b *Configuration) bool {
	aText, aErr := Encode(a)
	bText, bErr := Encode(b)
	return aErr == nil && bErr == nil && bytes.Equal(aText, bText)
}
