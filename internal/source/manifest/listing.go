package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/filewatch"
)

// listing is what there is to read, and what to watch for it to change.
type listing struct {
	entries []entry // by name
	watch   filewatch.Set
	// folders are those that were read, each with what it is called: the
	// beginning of the names of its files. With links, it can be several.
	folders map[inode][]string
}

// entry is a file to read.
type entry struct {
	name string // relative to the folder, with slashes
	path string
	info fs.FileInfo
	err  error // why info is missing
	// data is the content, if it was read before: then there is no path.
	data []byte
}

// list finds the files of a path. The watch set is complete also if it fails.
func list(path string) (*listing, error) {
	l := &listing{watch: filewatch.Set{}, folders: map[inode][]string{}}
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
	if err := l.folder(real, "", nil); err != nil {
		return l, err
	}
	slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return l, nil
}

// folder adds the files of a folder and of those below it. Hidden ones are
// ignored, and links back to a folder above.
func (l *listing) folder(dir, prefix string, above []fs.FileInfo) error {
	l.watch.Directory(dir)
	self, err := os.Stat(dir)
	if err != nil {
		return notExistIsNil(prefix, fmt.Errorf("reading the folder: %w", err))
	}
	if slices.ContainsFunc(above, func(i fs.FileInfo) bool { return os.SameFile(i, self) }) {
		return nil
	}
	above = append(above, self)
	l.folders[stampOf(self).inode] = append(l.folders[stampOf(self).inode], prefix)
	children, err := os.ReadDir(dir)
	if err != nil {
		return notExistIsNil(prefix, fmt.Errorf("reading the folder: %w", err))
	}
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

// notExistIsNil drops the error of a folder below the path that vanished while
// it was read; its parent is read again anyway.
func notExistIsNil(prefix string, err error) error {
	if prefix != "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (l *listing) child(dir, prefix string, child fs.DirEntry, above []fs.FileInfo) error {
	name, path := prefix+child.Name(), filepath.Join(dir, child.Name())
	info, err := child.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted since the folder was read
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		path = l.watch.Trail(path)
		info, err = os.Stat(path)
	}
	switch {
	case err == nil && info.IsDir():
		return l.folder(path, name+"/", above)
	case isManifest(name):
		l.entries = append(l.entries, entry{name: name, path: path, info: info, err: err})
	}
	return nil
}

// again finds the files at some paths that changed, without listing the others:
// those that are there, and the names of those that are not. It is not ok if
// the changes may be about more than these files.
func (l *listing) again(paths []string) (entries []entry, gone []string, ok bool) {
	for _, path := range paths {
		info, err := os.Lstat(path)
		missing := errors.Is(err, fs.ErrNotExist)
		names := l.names(path)
		if len(names) == 0 || err != nil && !missing || err == nil && !alone(info) {
			return nil, nil, false
		}
		for _, name := range names {
			switch {
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

// names are those of the file at a path. There are none if it is not known to
// be just a file, or if its folder is not the one that was listed.
func (l *listing) names(path string) []string {
	if !l.watch.Leaf(path) {
		return nil
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil
	}
	var names []string
	for _, prefix := range l.folders[stampOf(folder).inode] {
		names = append(names, prefix+filepath.Base(path))
	}
	return names
}

// alone tells whether a change of a file is one of no other path: it is neither
// a folder nor a link, and has no second name that changes with it.
func alone(info fs.FileInfo) bool {
	return stampOf(info).links == 1 && !info.IsDir() && info.Mode()&fs.ModeSymlink == 0
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
