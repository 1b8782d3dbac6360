//go:build linux

package vm

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CacheVariable names the environment variable with the directory to keep kernels
// in.
const CacheVariable = "SLUICE_VM_CACHE"

// Cache is a directory of directories that are made once and then only read.
type Cache struct{ dir string }

// OpenCache opens the cache, and makes its directory if there is none.
func OpenCache() (Cache, error) {
	dir := os.Getenv(CacheVariable)
	if dir == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			return Cache{}, fmt.Errorf("find a directory for kernels (%s may name one): %w", CacheVariable, err)
		}
		dir = filepath.Join(home, "sluice-vm")
	}
	// Absolute, since commands run in other directories are given it.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Cache{}, err
	}
	return Cache{dir}, os.MkdirAll(dir, 0o755)
}

// entry returns the path of an entry, which make fills the first time. A process that
// comes meanwhile waits. An entry that is there is complete: it gets its name
// last.
func (c Cache) entry(name string, make func(dir string) error) (string, error) {
	path := filepath.Join(c.dir, name)
	unlock, err := lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	partial := path + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", err
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		return "", err
	}
	if err := make(partial); err != nil {
		return "", err
	}
	return path, os.Rename(partial, path)
}

// lock waits until no other process has the lock. It ends with the process at the
// latest.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
