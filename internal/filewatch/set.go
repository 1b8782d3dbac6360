package filewatch

import (
	"os"
	"path/filepath"
	"strings"
)

// Set says which changes matter, by the real path of the folder in which they
// happen. Make it with Set{}.
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

// Directory says that all in a folder matters.
func (s Set) Directory(dir string) { s.at(dir).all = true }

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

// Trail follows an absolute path link by link to where it really leads. Every
// step on the way matters: a link, or a folder on the way to one, may be
// replaced, as ConfigMap volumes do. A step that is not there matters, too.
func (s Set) Trail(path string) (real string) {
	dir, rest := "/", strings.Split(path, "/")
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
			dir = step // no link; whether it is there at all, its user will see
			continue
		}
		if links++; links > maxLinks {
			return step
		}
		if filepath.IsAbs(target) {
			dir = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return dir
}

// Leaf tells whether a path matters only as one of all in its folder: no trail
// leads over it, and nothing below it matters.
func (s Set) Leaf(path string) bool {
	f := s[filepath.Dir(path)]
	return f != nil && f.all && !f.names[filepath.Base(path)] && s[path] == nil
}

// Matters tells whether a change of this path does.
func (s Set) Matters(path string) bool {
	f := s[filepath.Dir(path)]
	if f == nil {
		return false
	}
	name := filepath.Base(path)
	return f.names[name] || f.all && !strings.HasPrefix(name, ".")
}
