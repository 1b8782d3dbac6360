package manifest

import (
	"errors"
	"fmt"
	"time"

	"sluice/internal/model"
)

// File is a file of manifests that was read, to be loaded elsewhere.
type File struct {
	Name string `json:"name"` // relative to the folder
	Data []byte `json:"data,omitempty"`
	// Problem is why there is no Data.
	Problem *Problem `json:"problem,omitempty"`
}

// ErrTooMuch is the error of a path that holds more than its reader wants.
var ErrTooMuch = errors.New("there is too much to read")

// ReadFiles reads the files of a path, which together have at most that many
// bytes.
func ReadFiles(path string, most int64) ([]File, error) {
	l, err := list(path)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		files[i].Name = e.name
		data, _, err := e.read(most)
		switch {
		case errors.Is(err, errTooLarge) || int64(len(data)) > most:
			return nil, fmt.Errorf("%w in %s: remove from it what is no Service, EndpointSlice, Node or ServiceCIDR", ErrTooMuch, path)
		case err != nil:
			problem := e.problem(err)
			files[i].Problem = &problem
		}
		files[i].Data = data
		most -= int64(len(data))
	}
	return files, nil
}

// LoadFiles is Load of a path that was read, as if it took the place of what is in
// force: Services keep their ages, and those that are new are the youngest.
func LoadFiles(files []File, nodeName string, inForce *model.State) *Content {
	l := &listing{}
	var unread []Problem
	for _, f := range files {
		if f.Problem != nil {
			unread = append(unread, *f.Problem)
			continue
		}
		l.entries = append(l.entries, entry{name: f.Name, data: append([]byte{}, f.Data...)})
	}
	content, _ := newLoader(nodeName, maxFileSize).load(l, time.Time{}, true)
	content.Problems = append(unread, content.Problems...)
	for i, e := range content.Events {
		if set, ok := e.(model.SetService); ok {
			content.Events[i] = aged(set, ageIn(inForce, set.Name))
		}
	}
	return content
}
