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

func (p *problemLog) update(byObject map[string][]model.Problem) {
	now := make(map[model.Problem]struct{}, len(p.known))
	for _, problems := range byObject {
		for _, problem := range problems {
			now[problem] = struct{}{}
		}
	}
	for _, problem := range missing(p.known, now) {
		p.write(p.log, "Problem with an object", problem)
	}
	for _, problem := range missing(now, p.known) {
		p.write(p.log.V(1), "Problem with an object is gone", problem)
	}
	p.known = now
}

func (p *problemLog) write(log logr.Logger, message string, problem model.Problem) {
	log.Info(message, "object", problem.Object, "field", problem.Field,
		"reason", problem.Reason, "remedy", problem.Remedy)
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
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
