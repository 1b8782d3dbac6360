package web

import (
	"slices"
	"strings"
	"time"

	"sluice/internal/model"
	"sluice/internal/printable"
	"sluice/internal/status"
)

// problem is something that does not work.
type problem struct {
	Level  status.Level
	Object string
	Link   string // to the page of the Service, "" for none
	Reason string
	Remedy string
	Note   string
}

// problems returns what does not work, the worst first, and how many more there are.
func problems(r *status.Report) (shown []problem, more int) {
	if !r.FailingSince.IsZero() {
		shown = append(shown, problem{Level: status.Bad, Object: "The kernel cannot be programmed", Reason: r.LastError,
			Remedy: "see the log of the proxy", Note: "for " + duration(r.Now.Sub(r.FailingSince))})
	}
	if a := r.APIServer; a != nil && !a.Connected {
		shown = append(shown, problem{Level: status.Bad, Object: "API server", Reason: a.Away(r.Now), Remedy: a.Remedy})
	}
	for _, f := range r.Failures {
		shown = append(shown, failureProblem(f, r.Now))
	}
	for _, p := range slices.Concat(r.Advisories, r.Problems) {
		shown = append(shown, objectProblem(p))
	}
	return shown, r.Frontends.Failed - len(r.Failures) + r.ProblemCount - len(r.Problems)
}

// failureProblem is that of a frontend that the kernel refused.
func failureProblem(f status.Failure, now time.Time) problem {
	p := problem{Level: status.Bad, Object: "Frontend " + f.Frontend, Reason: f.Error, Note: printable.Attempts(f.Attempts, f.Since, f.Retry, now)}
	if f.Service != "" {
		p.Object = "Service " + f.Service + " at " + f.Frontend
		namespace, name, _ := strings.Cut(f.Service, "/")
		p.Link = serviceLink(model.Name{Namespace: namespace, Name: name})
	}
	return p
}

// objectProblem is that of an object.
func objectProblem(p model.Problem) problem {
	out := problem{Level: status.Fair, Object: p.Object, Reason: p.What(), Remedy: p.Remedy}
	if name, ok := serviceOf(p.Object); ok {
		out.Link = serviceLink(name)
	}
	return out
}
