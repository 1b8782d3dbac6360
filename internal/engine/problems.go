package engine

import (
	"cmp"
	"slices"

	"github.com/go-logr/logr"

	"sluice/internal/model"
)

// problemLog logs each problem once when it appears, and once when it is gone.
type problemLog struct {
	log   logr.Logger
	known map[model.Problem]struct{}
}

func (p *problemLog) update(byObject map[model.Object][]model.Problem) {
	now := make(map[model.Problem]struct{}, len(p.known))
	for _, problems := range byObject {
		for _, problem := range problems {
			now[problem] = struct{}{}
		}
	}
	for _, problem := range missing(p.known, now) {
		// An error, to be found by whoever greps a log for what is wrong.
		p.log.Error(nil, "Problem with an object", keysAndValues(problem)...)
	}
	for _, problem := range missing(now, p.known) {
		p.log.V(1).Info("Problem with an object is gone", keysAndValues(problem)...)
	}
	p.known = now
}

// keysAndValues returns a problem for a structured log.
func keysAndValues(p model.Problem) []any {
	out := []any{"object", p.Object.String()}
	if p.Field != "" {
		out = append(out, "field", p.Field)
	}
	return append(out, "reason", p.Reason, "remedy", p.Remedy)
}

// missing returns the problems of want that have lacks, in a stable order.
func missing(have, want map[model.Problem]struct{}) []model.Problem {
	var out []model.Problem
	for problem := range want {
		if _, ok := have[problem]; !ok {
			out = append(out, problem)
		}
	}
	slices.SortFunc(out, func(a, b model.Problem) int {
		return cmp.Or(a.Object.Compare(b.Object), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
