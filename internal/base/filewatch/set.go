package filewatch

import (
	"os"
	"path/filepath"
	"strings"
)

// Set selects the changes that matter, by the real path of the directory in
// which they happen.
type Set map[string]*directory

type directory struct {
	all   bool // everything in it that is not hidden
	names map[string]bool
}

func (s Set) at(dir string) *directory {
	f := s[dir]
	if f == nil {
		f = &directory{names: map[string]bool{}}
		s[dir] = f
	}
	return f
}

// Directory selects everything in a directory.
func (s Set) Directory(dir string) { s.at(dir).all = true }

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

// Trail resolves an absolute path link by link. Every component is selected: a
// link, or a directory on the way to one, may be replaced, as in ConfigMap
// volumes, and one that does not exist may appear.
func (s Set) Trail(path string) (real string) {
	dir, rest := split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		s.at(dir).names[name] = true
		step := filepath.Join(dir, name)
		target, err := os.Readlink(step)
		if err != nil {
			dir = step // not a link; it may not exist
			continue
		}
		if links++; links > maxLinks {
			return step
		}
		root, names := split(target)
		if filepath.IsAbs(target) {
			dir = root
		}
		rest = append(names, rest...)
	}
	return dir
}

// split returns where an absolute path begins, / or a volume of Windows, and the names in a path.
func split(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), strings.Split(filepath.ToSlash(path[len(volume):]), "/")
}

// Leaf reports whether a path is selected only as an entry of its directory: it
// is part of no trail, and nothing below it is selected.
func (s Set) Leaf(path string) bool {
	f := s[filepath.Dir(path)]
	return f != nil && f.all && !f.names[filepath.Base(path)] && s[path] == nil
}

// Matters reports whether a path is selected.
func (s Set) Matters(path string) bool {
	f := s[filepath.Dir(path)]
	if f == nil {
		return false
	}
	name := filepath.Base(path)
	return f.names[name] || f.all && !strings.HasPrefix(name, ".")
}
