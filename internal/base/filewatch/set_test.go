package filewatch

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// A path begins at / or, on Windows, at a volume.
func TestTrailWithoutLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	set := Set{}
	if got := set.Trail(file); got != file {
		t.Errorf("%s leads to %s", file, got)
	}
	for _, path := range []string{file, dir, filepath.Dir(dir)} {
		if !set.Matters(path) {
			t.Errorf("a change of %s does not matter", path)
		}
	}
}

// needLinks skips a test where links cannot be made.
func needLinks(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows, and wine has none")
	}
}

func TestTrailFollowsLinks(t *testing.T) {
	needLinks(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", "current")
	link("current/file", "relative")
	link(filepath.Join(dir, "v1", "file"), "absolute")
	link("loop", "loop")
	tests := []struct {
		name, in, real string
		matters        []string
		not            []string
	}{
		{"no link", "v1/file", "v1/file", []string{"v1", "v1/file"}, []string{"v1/other", "v2"}},
		{"links to links", "relative", "v1/file", []string{"relative", "current", "v1", "v1/file"}, []string{"absolute"}},
		{"absolute link", "absolute", "v1/file", []string{"absolute", "v1", "v1/file"}, []string{"current"}},
		{"up again", "v1/../v1/file", "v1/file", []string{"v1", "v1/file"}, nil},
		{"no end", "loop", "loop", []string{"loop"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := Set{}
			if got, want := set.Trail(dir+"/"+test.in), filepath.Join(dir, test.real); got != want {
				t.Errorf("it leads to %s, want %s", got, want)
			}
			for _, path := range test.matters {
				if !set.Matters(filepath.Join(dir, path)) {
					t.Errorf("a change of %s does not matter", path)
				}
			}
			for _, path := range test.not {
				if set.Matters(filepath.Join(dir, path)) {
					t.Errorf("a change of %s matters", path)
				}
			}
		})
	}
}

func TestLeafIsOnNoTrail(t *testing.T) {
	needLinks(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	set := Set{}
	set.Directory(dir)
	set.Directory(filepath.Join(dir, "below"))
	set.Trail(filepath.Join(dir, "link"))
	for path, want := range map[string]bool{"file": true, "below/file": true, "below": false, "link": false, "target": false, "other/file": false} {
		if got := set.Leaf(filepath.Join(dir, path)); got != want {
			t.Errorf("%s is a leaf: %t, want %t", path, got, want)
		}
	}
}

func TestHiddenFilesDoNotMatter(t *testing.T) {
	set := Set{}
	set.Directory(filepath.FromSlash("/d"))
	for path, want := range map[string]bool{"/d/a": true, "/d/.a": false, "/d/a/b": false, "/e": false} {
		if got := set.Matters(filepath.FromSlash(path)); got != want {
			t.Errorf("a change of %s matters: %t, want %t", path, got, want)
		}
	}
}
