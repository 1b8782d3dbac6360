package iptables

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// ErrLocked says that another process kept the lock of iptables.
var ErrLocked = errors.New("another program holds the lock of iptables, /run/xtables.lock")

// CommandError is the failure of a command.
type CommandError struct {
	Path     string
	Message  string
	ExitCode int
}

// exitResource is the exit code for a lock that was not acquired or a busy kernel.
const exitResource = 4

func newCommandError(path, stderr string, code int) error {
	e := &CommandError{path, strings.Join(strings.Fields(stderr), " "), code}
	if code == exitResource && strings.Contains(e.Message, "lock") {
		return fmt.Errorf("%w, for more than %d s: %w (find it with fuser /run/xtables.lock)", ErrLocked, lockWait, e)
	}
	return e
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: %s (exit code %d)", filepath.Base(e.Path), e.Message, e.ExitCode)
}

// Refused reports whether a command failed for another reason than the lock, which
// is mostly its input.
func Refused(err error) bool {
	var e *CommandError
	return errors.As(err, &e) && !errors.Is(err, ErrLocked)
}

// RefusedLine is the number of the input line that the message names, 0 if none.
func RefusedLine(err error) int {
	var e *CommandError
	if !errors.As(err, &e) {
		return 0
	}
	_, rest, _ := strings.Cut(e.Message, "line")
	line := 0
	fmt.Sscanf(strings.TrimLeft(rest, ": "), "%d", &line)
	return line
}
