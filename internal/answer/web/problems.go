package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"sluice/internal/answer/services"
	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
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
	Brief  string // the reason beside others of the same kind, "" if that is the same
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
		out = append(out, problem{Level: status.Bad, Object: printable.Sentence(r.System.String() + " cannot be programmed"), Reason: r.LastError,
			Remedy: "see the log of the proxy", Note: "for " + duration(r.Now.Sub(r.FailingSince))})
	}
	if a := r.APIServer; a != nil && !a.Connected {
		out = append(out, problem{Level: status.Bad, Object: "API server", Reason: a.Away(r.Now), Remedy: a.Remedy})
	}
	for _, f := range r.Failures {
		out = append(out, failureProblem(f, r.System, r.Now))
	}
	if unlisted := r.Frontends.Failed - len(r.Failures); unlisted > 0 {
		out = append(out, problem{Level: status.Bad, Object: printable.Count(unlisted, "more frontend"), Link: query{Show: showFailing}.Link(),
			Reason: "refused by " + r.System.String()})
	}
	for _, p := range r.Advisories {
		out = append(out, objectProblem(p))
	}
	out = append(out, s.broken()...)
	for _, p := range s.defects {
		out = append(out, objectProblem(p))
	}
	return out
}

// broken returns the Services that do not work, and those that refuse clients now: the worst
// first, and of the same kind those with the most refusals.
func (s *snapshot) broken() (out []problem) {
	type found struct {
		*service
		*verdict.Service
		refused services.Refusals
	}
	var all []found
	for i := range s.services {
		svc, v := &s.services[i], &s.verdicts()[i]
		refused, refuses := s.refusing()[svc.Name]
		if told := v.Cause == verdict.ProgrammingFailed || v.Cause == verdict.AddressTaken; told {
			continue // by the failures, and by the problems of objects
		}
		if v.Faulty() || refuses {
			all = append(all, found{svc, v, refused})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(a.Word.Compare(b.Word), cmp.Compare(b.refused.Total(), a.refused.Total()))
	})
	for _, f := range all {
		out = append(out, brokenProblem(f.Name, f.Service, f.refused))
	}
	return out
}

// brokenProblem is that of a Service that does not work for all, or refuses clients.
func brokenProblem(name model.Name, v *verdict.Service, refused services.Refusals) problem {
	p := problem{Level: levelOf(v.Word), Object: model.ServiceObject(name).String(), Link: serviceLink(name), Brief: v.Why}
	what, cause, common := v.Word.Text(), v.Cause, causeText(v.Cause)
	if !v.Faulty() {
		why := refused.Cause()
		p.Level, p.Brief = status.Fair, why.Text()
		what, cause, common = "refuses clients", verdict.Cause(why.String()), why.Text()
	}
	p.Reason, p.kind, p.Remedy = what+": "+p.Brief, what+": "+common, remedies[cause]
	if rate := refused.Total(); rate > 0 {
		p.Note = perSecond(rate, true) + " refused attempts per second"
	}
	return p
}

// causeText describes a cause that Services have in common.
func causeText(c verdict.Cause) string {
	for why := range plan.NumFrontendRefusals {
		if string(c) == why.String() {
			return why.Text()
		}
	}
	return map[verdict.Cause]string{
		verdict.EndpointSilent: "endpoints do not answer",
		verdict.EndpointResets: "endpoints refuse connections",
		verdict.ForwardingOff:  "this node forwards no packets",
		verdict.ConntrackFull:  "the kernel has no room for new connections",
		verdict.NoPorts:        "there is no address and port here",
	}[c]
}

var remedies = map[verdict.Cause]string{
	verdict.Cause(plan.NoEndpoints.String()):      "give it an endpoint that is ready, or stop its clients",
	verdict.Cause(plan.NoLocalEndpoints.String()): "send clients to nodes with an endpoint, or set the traffic policy to Cluster",
	verdict.Cause(plan.SourceRanges.String()):     "add the clients to spec.loadBalancerSourceRanges if they may connect",
	verdict.EndpointSilent:                        "look whether the pods run, and for a firewall on the way to them",
	verdict.EndpointResets:                        "compare the port of the endpoints with the one that the pods listen on",
	verdict.ForwardingOff:                         "run sysctl -w net.ipv4.ip_forward=1 and net.ipv6.conf.all.forwarding=1, and make it permanent in /etc/sysctl.d",
	verdict.NoRoute:                               "look whether the pods exist, and at their network plugin: ip route get shows the route to an address",
	verdict.ConntrackFull:                         "set conntrack.maxPerCore (--conntrack-max-per-core) higher, or find out with conntrack -L whose connections fill the table",
	verdict.NoPorts:                               "give it a port and a ClusterIP, or remove it",
}

// failureProblem is that of a frontend that was refused.
func failureProblem(f status.Failure, by plan.System, now time.Time) problem {
	p := problem{Level: status.Bad, Object: "Frontend " + f.Frontend, Reason: f.Error, kind: "refused by " + by.String() + ": " + f.Error,
		Note: printable.Attempts(f.Attempts, f.Since, f.Retry, now)}
	if f.Service != "" {
		p.Object = "Service " + f.Service + " at " + f.Frontend
		namespace, name, _ := strings.Cut(f.Service, "/")
		p.Link = serviceLink(model.Name{Namespace: namespace, Name: name})
	}
	return p
}

func objectProblem(p model.Problem) problem {
	out := problem{Level: status.Fair, Object: p.Object.String(), Reason: p.What(), Remedy: p.Remedy, kind: kindOfProblem(p)}
	if name, ok := p.Object.Service(); ok {
		out.Link = serviceLink(name)
	}
	return out
}

// particular matches what distinguishes problems of the same kind: quoted values,
// names with their namespace, numbers and addresses.
var particular = regexp.MustCompile(`"[^"]*"|\[[0-9]+\]|\S+/\S+|[0-9a-f]*:[0-9a-f:.]*:[0-9a-f:.]*|[0-9][0-9.]*`)

// kindOfProblem is what problems have in common that have the same cause.
func kindOfProblem(p model.Problem) string {
	field := strings.TrimSuffix(particular.ReplaceAllString(p.Field, ""), ".")
	reason := particular.ReplaceAllStringFunc(p.Reason, func(text string) string {
		if _, err := netip.ParseAddr(text); err == nil || text[0] != '"' {
			return "…"
		}
		return `"…"`
	})
	return strings.TrimPrefix(p.Object.Kind+" "+field+": "+reason, " ")
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
