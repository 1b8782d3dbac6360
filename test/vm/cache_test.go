//go:build linux

package vm

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestEntryIsMadeOnceConcurrently(t *testing.T) {
	t.Setenv(CacheVariable, t.TempDir())
	var made atomic.Int32
	var visitors sync.WaitGroup
	for range 8 {
		visitors.Go(func() {
			c, err := OpenCache()
			if err != nil {
				t.Error(err)
				return
			}
			dir, err := c.entry("thing", func(dir string) error {
				made.Add(1)
				return os.WriteFile(filepath.Join(dir, "content"), []byte("x"), 0o644)
			})
			if err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "content")); err != nil {
				t.Errorf("incomplete: %v", err)
			}
		})
	}
	visitors.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("made %d times, want once", n)
	}
}

func TestEntryThatFailedIsMadeAgain(t *testing.T) {
	c := Cache{t.TempDir()}
	broken := errors.New("broken")
	_, err := c.entry("thing", func(dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "rest"), nil, 0o644), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatalf("error %v, want %v", err, broken)
	}
	dir, err := c.entry("thing", func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "rest")); !os.IsNotExist(err) {
		t.Errorf("what the failure left is still there: %v", err)
	}
}
