//go:build linux

package lab

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"

	"sluice/internal/source"
	"sluice/internal/source/manifest"
)

var errGone = errors.New("the process has ended")

func isGone(err error) bool { return errors.Is(err, os.ErrProcessDone) }

// Log keeps the lines that a process writes.
type Log struct {
	mutex sync.Mutex
	rest  []byte // of a line that has not ended
	lines []string
	more  chan struct{} // closed and replaced when lines are added
}

func newLog() *Log { return &Log{more: make(chan struct{})} }

// Write takes what the process wrote.
func (l *Log) Write(b []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			break
		}
		l.lines = append(l.lines, string(line))
		l.rest = rest
	}
	close(l.more)
	l.more = make(chan struct{})
	return len(b), nil
}

// Len is the number of lines so far.
func (l *Log) Len() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return len(l.lines)
}

// From returns the lines from one on, and a channel that is closed when there
// are more.
func (l *Log) From(mark int) (lines []string, more <-chan struct{}) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.lines[min(mark, len(l.lines)):], l.more
}

// String is the whole log.
func (l *Log) String() string {
	lines, _ := l.From(0)
	return strings.Join(lines, "\n")
}

// Digest returns the digest with which the proxy logs that it loaded a path.
func Digest(path string) (string, error) {
	content, err := manifest.Load(path, source.Proxy{})
	if err != nil {
		return "", err
	}
	return content.Digest, nil
}

// isLoaded recognises the line that says that manifests were loaded.
func isLoaded(line, digest string) bool {
	return strings.Contains(line, `"Loaded manifests"`) && strings.Contains(line, digest)
}

// isUnchanged recognises a load that found nothing new.
func isUnchanged(line string) bool { return strings.Contains(line, " changes=0 ") }

// isProgrammed recognises the line that says that the kernel was programmed.
func isProgrammed(line string) bool { return strings.Contains(line, `"Programmed"`) }
