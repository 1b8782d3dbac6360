// Package regularfile reads files that cannot block their reader by what they are: a
// pipe has nobody who writes, a terminal nobody who types. What is not a regular file is
// refused.
//
// A file system that hangs still blocks. Whoever must not wait for one reads in a
// goroutine of its own.
package regularfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Why a file is refused. Which one it is the caller says.
var (
	ErrNotRegular = errors.New("it is not a regular file")
	ErrTooLarge   = errors.New("it is too large")
)

// Read reads a regular file that is not larger than the limit.
func Read(path string, limit int64) ([]byte, error) {
	f, size, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes, and at most %d are read", ErrTooLarge, size, limit)
	}
	return io.ReadAll(io.LimitReader(f, size))
}

// Check reports whether Read would read a file, for those that a library reads.
func Check(path string) error {
	f, _, err := open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

func open(path string) (f *os.File, size int64, err error) {
	// Without O_NONBLOCK, opening a pipe would block, and without O_NOCTTY a terminal could become that
	// of this process.
	if f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0); err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}
