package testkit

import (
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// Journal keeps what is logged to be seen without any -v. The zero value is empty.
type Journal struct {
	mu    sync.Mutex
	lines []string
}

// Logger writes into the journal.
func (j *Journal) Logger() logr.Logger {
	return funcr.New(func(_, line string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, line)
	}, funcr.Options{})
}

// With returns the lines so far that have the text in them.
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
