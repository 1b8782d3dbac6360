//go:build linux

package vm

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// archive writes the format that the kernel unpacks an initramfs from: cpio,
// "newc". The first error is kept, and close returns it.
type archive struct {
	w     *bufio.Writer
	dirs  map[string]bool // written already
	count int
	err   error
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriter(w), dirs: map[string]bool{".": true, "/": true}}
}

// entry is a file, directory, link or device.
type entry struct {
	path    string
	mode    uint32 // with the file type
	device  [2]uint32
	size    int64
	content io.Reader
}

// dir adds a directory and those above it, unless they are there.
func (a *archive) dir(name string) {
	if name = path.Clean(name); !a.dirs[name] {
		a.dirs[name] = true
		a.add(entry{path: name, mode: unix.S_IFDIR | 0o755})
	}
}

// text adds a file with the given content.
func (a *archive) text(name string, mode uint32, content string) {
	a.add(entry{path: name, mode: unix.S_IFREG | mode, size: int64(len(content)), content: strings.NewReader(content)})
}

// link adds a symbolic link.
func (a *archive) link(name, target string) {
	a.add(entry{path: name, mode: unix.S_IFLNK | 0o777, size: int64(len(target)), content: strings.NewReader(target)})
}

// device adds a character device.
func (a *archive) device(name string, major, minor uint32) {
	a.add(entry{path: name, mode: unix.S_IFCHR | 0o600, device: [2]uint32{major, minor}})
}

// copy adds a file or directory of this machine, under another name. Links are
// followed.
func (a *archive) copy(name, from string) {
	a.keep(filepath.WalkDir(from, func(source string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, source)
		if err != nil {
			return err
		}
		return a.copyOne(path.Join(name, relative), source)
	}))
}

func (a *archive) copyOne(name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		a.dir(name)
		return nil
	}
	a.add(entry{path: name, mode: unix.S_IFREG | uint32(info.Mode().Perm()), size: info.Size(), content: f})
	return nil
}

// add writes one entry, after the directories that it is in.
func (a *archive) add(e entry) {
	a.dir(path.Dir(e.path))
	if a.err != nil {
		return
	}
	a.count++
	name := strings.TrimPrefix(e.path, "/") + "\x00"
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.count, e.mode, 0, 0, 1, 0, e.size, 0, 0, e.device[0], e.device[1], len(name), 0)
	a.write(header + name)
	a.pad(int64(len(header) + len(name)))
	if e.content != nil {
		_, err := io.CopyN(a.w, e.content, e.size)
		a.keep(err)
		a.pad(e.size)
	}
}

func (a *archive) write(s string) {
	_, err := a.w.WriteString(s)
	a.keep(err)
}

// pad fills up to a multiple of four bytes after n.
func (a *archive) pad(n int64) { a.write("\x00\x00\x00"[:-n&3]) }

func (a *archive) keep(err error) {
	if a.err == nil {
		a.err = err
	}
}

// close ends the archive.
func (a *archive) close() error {
	a.add(entry{path: "TRAILER!!!"})
	a.keep(a.w.Flush())
	return a.err
}
