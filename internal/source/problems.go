package source

import (
	"fmt"

	"sluice/internal/model"
)

// maxProblems bounds the number of problems of one object.
const maxProblems = 16

// report collects the problems of one object.
type report struct {
	object   string
	problems []model.Problem
	more     int
}

func reportOn(kind string, name string) *report {
	return &report{object: kind + " " + name}
}

// add records that a field is wrong. The remedy is for its owner.
func (r *report) add(field, remedy, reason string, args ...any) {
	if len(r.problems) == maxProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, model.Problem{
		Object: r.object,
		Field:  field,
		Reason: fmt.Sprintf(reason, args...),
		Remedy: remedy,
	})
}

// list returns the problems.
func (r *report) list() []model.Problem {
	if r.more > 0 {
		r.problems = append(r.problems, model.Problem{
			Object: r.object,
			Reason: fmt.Sprintf("%d more problems of the same object", r.more),
			Remedy: "mend the ones listed first",
		})
		r.more = 0
	}
	return exact(r.problems)
}
