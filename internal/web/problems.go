package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/printable"
	"sluice/internal/status"
)

const (
	// What the overview shows: groups of problems, and members of each.
	maxGroups, maxMembers = 3, 3
	// maxListed is how many members of a group the page of problems shows.
	maxListed = 500
	// minRefused is the rate from which on refusals are a problem. A stray client
	// once in a while is none.
	minRefused = 0.1
)

// problem is something that does not work.
type problem struct {
	Level  status.Level
	Object string
	Link   string // to the page of the Service, "" for none
	Reason string
	Remedy string
	Note   string
	kind   string // problems of the same kind are grouped, "" for one alone
}

// group are problems of one kind.
type group struct {
	Level   status.Level
	ID      string
	Title   string    // "" if it has one member
	Members []problem // those that are shown
	More    int
	Remedy  string // if all have the same
}

// problemsPage lists all problems.
type problemsPage struct {
	frame
	Groups []group
	Count  int
}

func (h *Handler) problems(r *http.Request) answer {
	report, s := h.Status(), h.snapshot(r.Context())
	all := s.problems(report)
	return answer{http.StatusOK, problemsTemplate, &problemsPage{newFrame("Problems", report), grouped(all, maxListed), len(all)}}
}

// problems returns what does not work, the worst first.
func (s *snapshot) problems(r *status.Report) (out []problem) {
	if !r.FailingSince.IsZero() {
		out = append(out, problem{Level: status.Bad, Object: "The kernel cannot be programmed", Reason: r.LastError,
			Remedy: "see the log of the proxy", Note: "for " + duration(r.Now.Sub(r.FailingSince))})
	}
	if a := r.APIServer; a != nil && !a.Connected {
		out = append(out, problem{Level: status.Bad, Object: "API server", Reason: a.Away(r.Now), Remedy: a.Remedy})
	}
	for _, f := range r.Failures {
		out = append(out, failureProblem(f, r.Now))
	}
	if unlisted := r.Frontends.Failed - len(r.Failures); unlisted > 0 {
		out = append(out, problem{Level: status.Bad, Object: printable.Count(unlisted, "more frontend"), Link: query{Show: showFailing}.Link(),
			Reason: "refused by the kernel"})
	}
	for _, p := range r.Advisories {
		out = append(out, objectProblem(p))
	}
	out = append(out, s.refusing()...)
	for _, p := range s.defects {
		out = append(out, objectProblem(p))
	}
	return out
}

// refusing returns the Services that refuse clients now, those with the most first.
func (s *snapshot) refusing() (out []problem) {
	refusing := map[plan.Key]rates{}
	for key, r := range s.counters.rates {
		if r.refused != (refusals{}) {
			refusing[key] = r
		}
	}
	all := byService(s.inspect, refusing)
	maps.DeleteFunc(all, func(_ model.Name, r rates) bool { return r.refused.total() < minRefused })
	for _, name := range slices.SortedFunc(maps.Keys(all), func(a, b model.Name) int {
		return cmp.Or(cmp.Compare(all[b].refused.total(), all[a].refused.total()), a.Compare(b))
	}) {
		refused := all[name].refused
		cause := refused.cause()
		out = append(out, problem{
			Level: status.Fair, Object: serviceObject(name), Link: serviceLink(name),
			Reason: fmt.Sprintf("refuses %s connection attempts per second: %s", perSecond(refused.total(), true), cause.Text()),
			Remedy: refusalRemedies[cause], kind: "refuses clients: " + cause.Text(),
		})
	}
	return out
}

var refusalRemedies = [plan.NumFrontendRefusals]string{
	plan.NoEndpoints:     "find out why no endpoint is ready, or stop the clients",
	plan.NoLocalEndpoint: "send clients to nodes with an endpoint, or set the traffic policy to Cluster",
	plan.SourceRange:     "add the clients to spec.loadBalancerSourceRanges if they may connect",
}

// failureProblem is that of a frontend that the kernel refused.
func failureProblem(f status.Failure, now time.Time) problem {
	p := problem{Level: status.Bad, Object: "Frontend " + f.Frontend, Reason: f.Error, kind: "refused by the kernel: " + f.Error,
		Note: printable.Attempts(f.Attempts, f.Since, f.Retry, now)}
	if f.Service != "" {
		p.Object = "Service " + f.Service + " at " + f.Frontend
		namespace, name, _ := strings.Cut(f.Service, "/")
		p.Link = serviceLink(model.Name{Namespace: namespace, Name: name})
	}
	return p
}

// objectProblem is that of an object.
func objectProblem(p model.Problem) problem {
	out := problem{Level: status.Fair, Object: p.Object, Reason: p.What(), Remedy: p.Remedy, kind: kindOfProblem(p)}
	if name, ok := serviceOf(p.Object); ok {
		out.Link = serviceLink(name)
	}
	return out
}

// particular matches what distinguishes problems of the same kind: quoted values,
// names with their namespace, numbers and addresses.
var particular = regexp.MustCompile(`"[^"]*"|\[[0-9]+\]|\S+/\S+|[0-9a-f]*:[0-9a-f:.]*:[0-9a-f:.]*|[0-9][0-9.]*`)

// kindOfProblem is what problems have in common that have the same cause.
func kindOfProblem(p model.Problem) string {
	kind, _, _ := strings.Cut(p.Object, " ")
	field := strings.TrimSuffix(particular.ReplaceAllString(p.Field, ""), ".")
	reason := particular.ReplaceAllStringFunc(p.Reason, func(text string) string {
		if _, err := netip.ParseAddr(text); err == nil || text[0] != '"' {
			return "…"
		}
		return `"…"`
	})
	return strings.TrimPrefix(kind+" "+field+": "+reason, " ")
}

// grouped groups problems by kind, in the order of the first of each, and keeps some
// members of each.
func grouped(all []problem, most int) []group {
	var out []group
	indexes := map[string]int{}
	for _, p := range all {
		i, known := indexes[p.kind]
		if p.kind == "" || !known {
			i = len(out)
			indexes[p.kind] = i
			out = append(out, group{Level: p.Level, ID: fmt.Sprintf("group-%d", i), Remedy: p.Remedy})
		}
		g := &out[i]
		if g.Remedy != p.Remedy {
			g.Remedy = ""
		}
		if len(g.Members) == most {
			g.More++
			continue
		}
		g.Members = append(g.Members, p)
	}
	for i := range out {
		if g := &out[i]; len(g.Members) > 1 {
			_, what, found := strings.Cut(g.Members[0].kind, " ")
			if !found || !strings.HasPrefix(g.Members[0].kind, "Service ") && !strings.HasPrefix(g.Members[0].kind, "EndpointSlice ") {
				what = g.Members[0].kind
			}
			g.Title = count(len(g.Members)+g.More) + " × " + what
		}
	}
	return out
}
