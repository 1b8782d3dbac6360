package source

import (
	"fmt"

	"sluice/internal/base/printable"
	"sluice/internal/model"
)

// maxProblems bounds the number of problems of one object.
const maxProblems = 16

// Report gathers the problems of one object.
type Report struct {
	object   model.Object
	problems []model.Problem
	more     int
	worse    bool // something malformed is among the rest
}

// NewReport returns an empty report on an object.
func NewReport(object model.Object) *Report { return &Report{object: object} }

// unusable records that a field has a value that cannot be used. The remedy says what
// its owner can do. Values may be of any length.
func (r *Report) unusable(field, remedy, reason string, args ...any) {
	r.add(model.Problem{Field: field, Reason: fmt.Sprintf(reason, printable.CutAll(args)...), Remedy: remedy})
}

// Malformed records that a field has a value that an API server would have refused.
func (r *Report) Malformed(field, remedy, reason string, args ...any) {
	r.add(model.Problem{Field: field, Reason: fmt.Sprintf(reason, printable.CutAll(args)...), Remedy: remedy, Malformed: true})
}

func (r *Report) add(p model.Problem) {
	if len(r.problems) == maxProblems {
		r.more++
		r.worse = r.worse || p.Malformed
		return
	}
	p.Object = r.object
	r.problems = append(r.problems, p)
}

// List returns what was recorded.
func (r *Report) List() []model.Problem {
	if r.more > 0 {
		r.problems = append(r.problems, model.Problem{
			Object:    r.object,
			Reason:    fmt.Sprintf("%d more problems of the same object", r.more),
			Remedy:    "correct the ones listed first",
			Malformed: r.worse,
		})
		r.more = 0
	}
	return exact(r.problems)
}
