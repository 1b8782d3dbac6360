package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/model"
	"sluice/internal/status"
)

// problem is something that does not work, and why.
type problem struct {
	Class  string
	Object string
	Link   string // to the Service it is about, "" for none
	Reason string
	Remedy string
	Note   string
}

// problems are what does not work, the worst first, and how many more there are.
func problems(r *status.Report) (shown []problem, more int) {
	if !r.FailingSince.IsZero() {
		shown = append(shown, problem{Class: bad, Object: "The kernel cannot be programmed", Reason: r.LastError,
			Remedy: "see the log of the proxy; what was programmed before stays in force",
			Note:   "for " + duration(r.Now.Sub(r.FailingSince))})
	}
	if a := r.APIServer; a != nil && !a.Connected {
		shown = append(shown, problem{Class: bad, Object: "The API server cannot be reached", Reason: a.Error, Remedy: a.Remedy,
			Note: "for " + duration(r.Now.Sub(a.Since)) + "; what was known then is in force"})
	}
	for _, f := range r.Failures {
		shown = append(shown, ofFailure(f, r.Now))
	}
	for _, p := range slices.Concat(r.Advisories, r.Problems) {
		shown = append(shown, ofProblem(p))
	}
	return shown, r.Frontends.Failed - len(r.Failures) + r.ProblemCount - len(r.Problems)
}

// ofFailure tells of a frontend that the kernel refused.
func ofFailure(f status.Failure, now time.Time) problem {
	t := problem{Class: bad, Object: "Frontend " + f.Frontend, Reason: f.Error}
	if f.Service != "" {
		t.Object = "Service " + f.Service + " at " + f.Frontend
		namespace, name, _ := strings.Cut(f.Service, "/")
		t.Link = serviceLink(model.Name{Namespace: namespace, Name: name})
	}
	t.Note = fmt.Sprintf("refused %s in %s, next try in %s", times(f.Attempts), duration(now.Sub(f.Since)), duration(f.Retry.Sub(now)))
	return t
}

// ofProblem tells of what was left out of an object.
func ofProblem(p status.Problem) problem {
	t := problem{Class: fair, Object: p.Object, Reason: p.Reason, Remedy: p.Remedy}
	if p.Field != "" {
		t.Reason = p.Field + ": " + p.Reason
	}
	if name, ok := serviceOf(p.Object); ok {
		t.Link = serviceLink(name)
	}
	return t
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return count(n) + " times"
}
