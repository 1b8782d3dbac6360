package testkit

import (
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// Journal records what is logged at verbosity 0. The zero value is empty.
type Journal struct {
	mu    sync.Mutex
	lines []string
}

// Logger returns a logger that writes to the journal.
func (j *Journal) Logger() logr.Logger {
	return funcr.New(func(_, line string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, line)
	}, funcr.Options{})
}

// With returns the lines so far that contain the text.
func (j *Journal) With(text string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, line := range j.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}
