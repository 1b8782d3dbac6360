//go:build linux

package soak

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// diary is the story of a run.
type diary struct {
	began time.Time

	mutex   sync.Mutex
	journal []string
}

// note adds to the story.
func (d *diary) note(format string, args ...any) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.journal = append(d.journal, fmt.Sprintf("%s  %s", d.clock(time.Now()), fmt.Sprintf(format, args...)))
}

// clock formats a time for the story.
func (d *diary) clock(at time.Time) string { return fmt.Sprintf("%9.3f", at.Sub(d.began).Seconds()) }

// story returns what happened lately.
func (d *diary) story() string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return fmt.Sprintf("seed %d, seconds since the start:\n%s", *seed, strings.Join(d.journal, "\n"))
}

// turnPage forgets all but the last few lines.
func (d *diary) turnPage() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.journal = d.journal[max(0, len(d.journal)-5):]
}
