package manifest

import (
	"errors"
	"fmt"
	"time"

	"sluice/internal/base/regularfile"
	"sluice/internal/model"
	"sluice/internal/source"
)

// File is a file of manifests that was read, to be loaded elsewhere.
type File struct {
	Name    string   `json:"name"` // relative to the directory
	Data    []byte   `json:"data,omitempty"`
	Problem *Problem `json:"problem,omitempty"` // why there is no Data
}

// errTooMuch is the error of a path that holds more than the limit.
var errTooMuch = errors.New("there is too much to read")

// ReadFiles reads the files of a path, which together have at most limit bytes.
func ReadFiles(path string, limit int64) ([]File, error) {
	l, err := list(path)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		data, _, err := e.read(limit)
		if errors.Is(err, regularfile.ErrTooLarge) {
			return nil, fmt.Errorf("%w in %s: remove from it what is no Service, EndpointSlice, Node or ServiceCIDR", errTooMuch, path)
		}
		files[i] = File{Name: e.name, Data: data}
		if err != nil {
			problem := e.problem(err)
			files[i].Problem = &problem
		}
		limit -= int64(len(data))
	}
	return files, nil
}

// LoadFiles is Load of files that were read, as if they replaced what is in force:
// Services keep their ages, and new ones are the youngest.
func LoadFiles(files []File, proxy source.Proxy, inForce *model.State) *Content {
	var entries []entry
	var unread []Problem
	for _, f := range files {
		if f.Problem != nil {
			unread = append(unread, *f.Problem)
			continue
		}
		entries = append(entries, entry{name: f.Name, data: append([]byte{}, f.Data...)})
	}
	content := newLoader(proxy, maxFileSize).all(entries, time.Time{}, true)
	content.Problems = append(unread, content.Problems...)
	for i, e := range content.Events {
		if set, ok := e.(model.SetService); ok {
			created := undated.AddDate(0, 6, 0) // more updates than there can be
			if s := inForce.Service(set.Name); s != nil {
				created = s.Created
			}
			content.Events[i] = aged(set, created)
		}
	}
	return content
}
