// Package sysctl reads and writes kernel settings under /proc and /sys. Settings
// that have the desired value already are not written, so that an unprivileged
// proxy starts without errors after an init container made them.
package sysctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
)

// Options configures the functions of this package.
type Options struct {
	Conntrack Conntrack
	Logger    logr.Logger
	// Root is where proc and sys are mounted; "" for the root directory.
	Root string
}

// Error is a kernel setting that could not be changed.
type Error struct {
	File   string
	Value  int // the desired one
	Remedy string
	Err    error
}

func (u *Error) Error() string {
	return fmt.Sprintf("set %s to %d: %v (%s)", u.File, u.Value, u.Err, u.Remedy)
}

func (u *Error) Unwrap() error { return u.Err }

// SetOOMScore sets how likely the kernel is to kill this process when memory
// runs out, from -1000 (never) to 1000. The error is an *Error.
func SetOOMScore(o Options, score int) error {
	return o.set("proc/self/oom_score_adj", score)
}

// Setting is a file and the value that it should have.
type Setting struct {
	File  string // below Root
	Value int
}

// Set changes a setting. The error is an *Error.
func Set(o Options, s Setting) error { return o.set(s.File, s.Value) }

func (o Options) path(file string) string { return filepath.Join(cmp.Or(o.Root, "/"), file) }

func (o Options) read(file string) (int, error) {
	text, err := os.ReadFile(o.path(file))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// readAll reads a setting that each interface has, by the interface's name. "all" and
// "default" are among them; the loopback device is not.
func (o Options) readAll(dir, setting string) (map[string]int, error) {
	entries, err := os.ReadDir(o.path(dir))
	if err != nil {
		return nil, err
	}
	values := map[string]int{}
	for _, e := range entries {
		value, err := o.read(filepath.Join(dir, e.Name(), setting))
		switch {
		case e.Name() == "lo" || errors.Is(err, fs.ErrNotExist): // the interface was removed meanwhile
		case err != nil:
			return nil, err
		default:
			values[e.Name()] = value
		}
	}
	return values, nil
}

// set writes a setting unless it has the value already: an init container with
// more privileges may have set it.
func (o Options) set(file string, value int) error {
	present, err := o.read(file)
	if err == nil && present == value {
		return nil
	}
	if err == nil {
		err = o.write(file, value)
	}
	if err != nil {
		return &Error{o.path(file), value, remedy(file, value, err), reason(err)}
	}
	o.Logger.Info("Changed a setting of the kernel", "file", o.path(file), "from", present, "to", value)
	return nil
}

// write never creates a file: only the kernel's own files are settings.
func (o Options) write(file string, value int) error {
	out, err := os.OpenFile(o.path(file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = out.WriteString(strconv.Itoa(value))
	return errors.Join(err, out.Close())
}

// reason returns the error without the path, which an Error contains anyway.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// remedy returns what an administrator can do about the error.
func remedy(file string, value int, err error) string {
	byHand := fmt.Sprintf("or set it on the node before: echo %d > /%s", value, file)
	switch {
	case file == "proc/self/oom_score_adj":
		return "give the proxy CAP_SYS_RESOURCE, or choose a higher --oom-score-adj"
	case errors.Is(err, fs.ErrNotExist):
		return "load the module nf_conntrack, and run the proxy where proc and sys are mounted"
	case errors.Is(err, syscall.EOPNOTSUPP):
		return "run the proxy in the machine's first network namespace, " + byHand
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS): // as it is in containers
		return "let a privileged init container run the proxy with --init-only, " + byHand
	}
	return byHand[len("or "):]
}
