package filewatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"sluice/internal/testkit"
)

func TestGatherReturnsEachPathOnce(t *testing.T) {
	dir := t.TempDir()
	w := New(logr.Discard())
	defer w.Close()
	set := Set{}
	set.Directory(dir)
	if w.Blind() || !w.Follow(set) {
		t.Fatal("the directory cannot be watched")
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"b", ".hidden", "a", "b"} {
		if err := os.WriteFile(path(name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, ok := w.Gather(context.Background(), clock.RealClock{}, testkit.Scaled(200*time.Millisecond), fsnotify.Event{Name: path("first")})
	if diff := cmp.Diff([]string{path("a"), path("b"), path("first")}, got); diff != "" || !ok {
		t.Errorf("ok: %t (-want +got)\n%s", ok, diff)
	}
}

func TestMovedDirectoryIsStillWatched(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows a watch goes with its directory, and fsnotify does not tell")
	}
	top := t.TempDir()
	dir, away := filepath.Join(top, "dir"), filepath.Join(top, "away")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := New(logr.Discard())
	defer w.Close()
	set := Set{}
	set.Directory(top)
	set.Directory(dir)
	w.Follow(set)
	for _, move := range [][2]string{{dir, away}, {away, dir}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, func() error {
		w.Settle(context.Background(), clock.RealClock{}, 50*time.Millisecond)
		if !w.Follow(set) {
			return errors.New("changes in the directory before the watch are missed")
		}
		return nil
	})
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for testkit.Receive(t, w.Events(), "an event for the file").Name != file {
	}
}
