package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/base/filewatch"
)

// listing holds the files to read, and what to watch for changes.
type listing struct {
	entries []entry // by name
	watch   filewatch.Set
	// dirs are the directories that were read, each with the beginning of the
	// names of its files; with links, there can be several. Where directories cannot be told
	// apart there are none.
	dirs map[inode][]string
}

// entry is a file to read.
type entry struct {
	name string // relative to the directory, with slashes
	path string
	info fs.FileInfo
	err  error  // why info is missing
	data []byte // the content if it was read before; then there is no path
}

// list finds the files of a path. The watch set is complete even if it fails.
func list(path string) (*listing, error) {
	l := &listing{watch: filewatch.Set{}, dirs: map[inode][]string{}}
	abs, err := filepath.Abs(path)
	if err != nil {
		return l, fmt.Errorf("finding the path: %w", err)
	}
	real := l.watch.Trail(abs)
	info, err := os.Stat(real)
	if err != nil {
		return l, fmt.Errorf("reading the path: %w", err)
	}
	if !info.IsDir() {
		l.entries = []entry{{name: filepath.Base(abs), path: real, info: info}}
		return l, nil
	}
	if err := l.dir(real, "", nil); err != nil {
		return l, err
	}
	slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return l, nil
}

// dir adds the files of a directory and of those below it. Hidden ones are ignored,
// and links back to a directory above.
func (l *listing) dir(dir, prefix string, above []fs.FileInfo) error {
	l.watch.Directory(dir)
	self, err := os.Stat(dir)
	var children []fs.DirEntry
	if err == nil {
		children, err = os.ReadDir(dir)
	}
	switch {
	case prefix != "" && errors.Is(err, fs.ErrNotExist):
		return nil // deleted meanwhile: its parent will be listed again
	case err != nil:
		return fmt.Errorf("reading the directory: %w", err)
	case slices.ContainsFunc(above, func(i fs.FileInfo) bool { return os.SameFile(i, self) }):
		return nil
	}
	if id := fileIDOf(self).inode; id != (inode{}) { // otherwise all would be the same one
		l.dirs[id] = append(l.dirs[id], prefix)
	}
	above = append(above, self)
	for _, child := range children {
		if strings.HasPrefix(child.Name(), ".") {
			continue
		}
		if err := l.child(dir, prefix, child, above); err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) child(dir, prefix string, child fs.DirEntry, above []fs.FileInfo) error {
	name, path := prefix+child.Name(), filepath.Join(dir, child.Name())
	info, err := child.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted since the directory was read
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		path = l.watch.Trail(path)
		info, err = os.Stat(path)
	}
	switch {
	case err == nil && info.IsDir():
		return l.dir(path, name+"/", above)
	case isManifest(name):
		l.entries = append(l.entries, entry{name: name, path: path, info: info, err: err})
	}
	return nil
}

// changed finds the files at some paths without listing the others: those that are
// there, and the names of those that are gone. It is not ok if the changes may be
// about more than these files.
func (l *listing) changed(paths []string) (entries []entry, gone []string, ok bool) {
	for _, path := range paths {
		dir, err := os.Stat(filepath.Dir(path))
		if err != nil || !l.watch.Leaf(path) || l.dirs[fileIDOf(dir).inode] == nil {
			return nil, nil, false
		}
		info, err := os.Lstat(path)
		missing := errors.Is(err, fs.ErrNotExist)
		// A link, or a file with a second name, changes under other paths, too.
		if !missing && (err != nil || info.Mode()&(fs.ModeDir|fs.ModeSymlink) != 0 || fileIDOf(info).links != 1) {
			return nil, nil, false
		}
		for _, prefix := range l.dirs[fileIDOf(dir).inode] {
			switch name := prefix + filepath.Base(path); {
			case !isManifest(name):
			case missing:
				gone = append(gone, name)
			default:
				entries = append(entries, entry{name: name, path: path, info: info})
			}
		}
	}
	return entries, gone, true
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
