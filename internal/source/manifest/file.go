package manifest

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/base/regularfile"
	"sluice/internal/source"
)

// maxFileSize is the size above which a file is refused unread.
const maxFileSize = 64 << 20

// settleTime is how long after its last change a file's identity can be trusted:
// a second change within the resolution of timestamps does not show.
const settleTime = 2 * time.Second

// file holds the content of a file. If its content is refused, its objects are those
// of the last good content.
type file struct {
	decoded
	id       fileID
	settled  bool
	sum      sum
	good     bool // nothing of the objects was refused
	ended    bool // the last line of the content was complete
	vanished bool // was listed, but could not be found

	unfinished sum       // the newer content that is not used, because it looks half written
	since      time.Time // when that was seen first; zero if there is none
}

// graceTime is how long the last content of a file stays in force while the file looks
// half written, and how long an object can be gone without being new.
const graceTime = 2 * time.Second

// refresh returns what is known of a file now, which is f if it did not change.
// The file is not read if its identity is the same.
func (f *file) refresh(e *entry, proxy source.Proxy, limit int64, now time.Time) *file {
	next := &file{}
	if e.info != nil {
		next.id = fileIDOf(e.info)
		next.settled = next.id.settled(now)
	}
	if f != nil && f.settled && f.id == next.id {
		return f
	}
	data, sum, err := e.read(limit)
	if f != nil && f.sum == sum && (err == nil || f.problems[0] == e.problem(err)) {
		f.id, f.settled = next.id, next.settled && err == nil // it may be readable next time
		f.since = time.Time{}
		return f
	}
	next.sum = sum
	if err != nil {
		next.settled = false
		next.problems = []Problem{e.problem(err)}
		next.vanished = e.err == nil && errors.Is(err, fs.ErrNotExist)
	} else {
		next.decoded = decodeFile(e.name, data, proxy, f)
		next.ended = bytes.HasSuffix(data, []byte("\n"))
	}
	why := next.cut(f)
	if why != "" && f.waitFor(next, now) {
		return f
	}
	next.good = !slices.ContainsFunc(next.problems, func(p Problem) bool { return p.Refused })
	switch {
	case !next.good && f != nil && f.good:
		next.objects, next.good = f.objects, true
	case why != "" && len(next.objects) < len(f.objects):
		next.problems = append(next.problems, fileProblem(e.name, "write it again, or delete it if that is meant",
			"%s, which removed %s", why, printable.Count(len(f.objects)-len(next.objects), "object")))
	}
	return next
}

// cut returns why a file looks half written, "" if it does not or had no objects before.
// A shell empties a file before the program that writes it starts, and the part that is
// there later ends anywhere.
func (next *file) cut(last *file) string {
	n := len(next.documents)
	switch {
	case last == nil || len(last.objects) == 0:
	case n == 0 && len(next.problems) == 0:
		return "it became empty"
	case n == 0: // it cannot be read, or is no text
	case next.documents[n-1].cut || !next.documents[n-1].json && last.ended && !next.ended:
		return "it ends inside a document"
	}
	return ""
}

// waitFor reports whether the file stays as it was because its next content may still
// be written: for a while after it changed last.
func (f *file) waitFor(next *file, now time.Time) bool {
	if f.since.IsZero() || f.unfinished != next.sum {
		f.unfinished, f.since = next.sum, now
	}
	f.settled = false
	return now.Sub(f.since) < graceTime
}

// sum is the hash of a file's content; zero if the file cannot be read.
type sum [sha256.Size]byte

// toggle adds a file to a digest, or removes it. The other files are not needed
// for that, nor does their order matter.
func (s *sum) toggle(name string, content sum) {
	one := sha256.Sum256(fmt.Appendf(nil, "%q %x\n", name, content[:]))
	subtle.XORBytes(s[:], s[:], one[:])
}

// String is enough of the sum to tell contents apart in a log.
func (s *sum) String() string { return hex.EncodeToString(s[:6]) }

// fileID changes whenever the content of a file does: unlike the modification
// time, the change time cannot be set.
type fileID struct {
	inode
	links   uint64
	size    int64
	changed int64 // in nanoseconds
}

// inode identifies a file or directory whatever its path.
type inode struct{ dev, ino uint64 }

// settled reports whether the file was left alone for long enough.
func (id fileID) settled(now time.Time) bool {
	return id != fileID{} && now.Sub(time.Unix(0, id.changed)) > settleTime
}

// problem returns why a file is refused.
func (e *entry) problem(err error) Problem {
	remedy := "make the file readable"
	switch {
	case errors.Is(err, regularfile.ErrTooLarge):
		remedy = "split it into smaller files"
	case errors.Is(err, regularfile.ErrNotRegular):
		remedy = "replace it by a regular file"
	}
	return fileProblem(e.name, remedy, "%v", err)
}

// read returns the content of a file and its hash.
func (e *entry) read(limit int64) (data []byte, hash sum, err error) {
	if data, err = e.data, e.err; data == nil && err == nil {
		data, err = regularfile.Read(e.path, limit)
	}
	switch {
	case err == nil:
		return data, sha256.Sum256(data), nil
	case errors.Is(err, regularfile.ErrNotRegular) || errors.Is(err, regularfile.ErrTooLarge):
		return nil, sum{}, err
	}
	return nil, sum{}, fmt.Errorf("it cannot be read: %w", err)
}
