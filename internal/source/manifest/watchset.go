package manifest

import (
	"os"
	"path/filepath"
	"strings"
)

// watchSet says which changes matter, by the real path of the folder in which
// they happen.
type watchSet map[string]*watchedFolder

type watchedFolder struct {
	all   bool // everything in it that is not hidden
	names map[string]bool
}

func (w watchSet) at(dir string) *watchedFolder {
	f := w[dir]
	if f == nil {
		f = &watchedFolder{names: map[string]bool{}}
		w[dir] = f
	}
	return f
}

// folder says that all in a folder matters.
func (w watchSet) folder(dir string) { w.at(dir).all = true }

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

// trail follows an absolute path link by link to where it really leads. Every
// step on the way matters: a link, or a folder on the way to one, may be
// replaced, as ConfigMap volumes do. A step that is not there matters, too.
func (w watchSet) trail(path string) (real string) {
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
		w.at(dir).names[name] = true
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

// matters tells whether a change of this path does.
func (w watchSet) matters(path string) bool {
	f := w[filepath.Dir(path)]
	if f == nil {
		return false
	}
	name := filepath.Base(path)
	return f.names[name] || f.all && !strings.HasPrefix(name, ".")
}
