package manifest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// maxFileSize is the size above which a file is refused unread.
const maxFileSize = 64 << 20

// settleTime is how long after its last change a file's stamp can be trusted.
// Within the resolution of time stamps, a second change would not show.
const settleTime = 2 * time.Second

// sum is the hash of a file's content; the zero sum is that of a file that
// cannot be read.
type sum [sha256.Size]byte

// stamp changes whenever the content of a file does. The change time cannot be
// set by programs, unlike the modification time.
type stamp struct {
	inode
	links   uint64
	size    int64
	changed syscall.Timespec
}

// inode is a file or a folder itself, whatever its path.
type inode struct{ dev, ino uint64 }

func stampOf(info fs.FileInfo) stamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{inode: inode{uint64(st.Dev), st.Ino}, links: uint64(st.Nlink), size: st.Size, changed: st.Ctim}
}

// settled tells whether the file was left alone long enough.
func (s stamp) settled(now time.Time) bool {
	return s != stamp{} && now.Sub(time.Unix(s.changed.Unix())) > settleTime
}

var (
	errNotRegular = errors.New("it is not a regular file")
	errTooLarge   = errors.New("it is too large")
)

// problem says why a file is refused.
func (e *entry) problem(err error) Problem {
	remedy := "make the file readable"
	switch {
	case errors.Is(err, errTooLarge):
		remedy = "split it into smaller files"
	case errors.Is(err, errNotRegular):
		remedy = "replace it by a regular file"
	}
	return fileProblem(e.name, remedy, "%v", err)
}

// read returns the content of a file and its hash. What is not a file, or is
// too large, is not read at all.
func (e *entry) read(limit int64) (data []byte, hash sum, err error) {
	if e.err != nil {
		return nil, sum{}, fmt.Errorf("it cannot be read: %w", e.err)
	}
	if e.data != nil {
		return e.data, sha256.Sum256(e.data), nil
	}
	// A pipe would block in open, were it not for O_NONBLOCK.
	f, err := os.OpenFile(e.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, sum{}, fmt.Errorf("it cannot be read: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, sum{}, fmt.Errorf("it cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return nil, sum{}, errNotRegular
	case info.Size() > limit:
		return nil, sum{}, fmt.Errorf("%w: %d bytes, and at most %d are read", errTooLarge, info.Size(), limit)
	}
	data = make([]byte, info.Size())
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, sum{}, fmt.Errorf("it cannot be read: %w", err)
	}
	data = data[:n]
	return data, sha256.Sum256(data), nil
}

// Digest is a hash over the names and contents of all files that are read from
// a path. The source logs the digest of what it loaded.
func Digest(path string) (string, error) {
	l, err := list(path)
	if err != nil {
		return "", err
	}
	var digest sum
	for i := range l.entries {
		_, sum, _ := l.entries[i].read(maxFileSize)
		digest.toggle(l.entries[i].name, sum)
	}
	return digest.String(), nil
}

// toggle adds a file to a digest, or takes it out again. No other file is
// needed for that, nor does their order matter.
func (digest *sum) toggle(name string, content sum) {
	one := sha256.Sum256(fmt.Appendf(nil, "%q %x\n", name, content[:]))
	subtle.XORBytes(digest[:], digest[:], one[:])
}

func (digest *sum) String() string { return hex.EncodeToString(digest[:]) }
