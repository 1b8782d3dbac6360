package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/internal/engine"
	"sluice/internal/explain"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const (
	maxFrontends = 200 // of a Service that are shown
	maxEndpoints = 100 // in the table of an answer
	askTimeout   = 5 * time.Second
)

// clients are those whom one can choose from by a click.
var clients = []plan.Client{plan.PodClient, plan.NodeClient, plan.OutsideClient}

// servicePage is the page of one Service.
type servicePage struct {
	frame
	Name      model.Name
	Known     bool
	State     sign
	Facts     []tile
	Counted   bool
	Frontends []frontendRow
	// MoreFrontends counts those that are not shown.
	MoreFrontends int

	From      string // who is talking
	Address   string // if that is an address
	Clients   []clientLink
	Complaint string // about a question that cannot be understood
	Answers   []answerView
	// MorePorts counts those that are not explained.
	MorePorts int
}

type clientLink struct {
	Word, Link string
	Chosen     bool
}

// frontendRow is a frontend of the Service.
type frontendRow struct {
	plan.Key
	Kind, Address, Port string
	Pools               []string
	Source              string // whose address endpoints see
	Connections, Rate   string
	Sign                sign
	Error               string // why it is not in the kernel
}

// answerView is what explain says of one packet.
type answerView struct {
	*explain.Answer
	Class     string
	Title     string
	Endpoints []explain.EndpointAnswer
	More      int
	Text      string
	Open      bool // the text is shown at once
}

func (p *Page) service(r *http.Request) answer {
	params := r.URL.Query()
	name := model.Name{Namespace: params.Get("namespace"), Name: params.Get("name")}
	from := strings.TrimSpace(params.Get("from"))
	if from == "" {
		from = plan.PodClient.String()
	}
	report, s := p.Status(), p.snapshot(r.Context())
	v := &servicePage{frame: newFrame(name.String(), report), Name: name, From: from, Counted: s.counters.counted()}
	if svc := s.find(name); svc == nil {
		v.State = sign{fair, "not known", ""}
	} else {
		v.Known = true
		v.State = s.signOf(svc)
		v.Facts = facts(svc)
		v.listFrontends(s, svc, report.Now)
	}
	p.ask(r.Context(), v)
	if !v.Known {
		return answer{http.StatusNotFound, serviceTemplate, v}
	}
	return answer{http.StatusOK, serviceTemplate, v}
}

func facts(s *service) []tile {
	all, here := s.endpoints()
	out := []tile{
		{"Endpoints", count(all), fmt.Sprintf("%s on this node", count(here))},
		{"Internal traffic", s.InternalPolicy.String(), "policy"},
		{"External traffic", s.ExternalPolicy.String(), "policy"},
	}
	affinity := tile{"Affinity", "None", "any endpoint, evenly"}
	if s.Affinity > 0 {
		affinity.Value, affinity.Note = "ClientIP", "for "+duration(time.Duration(s.Affinity)*time.Second)
	}
	out = append(out, affinity)
	if s.Filtered {
		out = append(out, tile{"Sources", count(len(s.SourceRanges)), "source ranges admitted"})
	}
	if s.HealthCheckNodePort != 0 {
		out = append(out, tile{"Health check", fmt.Sprint(s.HealthCheckNodePort), "node port"})
	}
	return out
}

func (v *servicePage) listFrontends(s *snapshot, svc *service, now time.Time) {
	for i, f := range svc.sorted() {
		if i == maxFrontends {
			v.MoreFrontends = len(svc.frontends) - i
			return
		}
		row := frontendRow{Key: f.Key, Kind: kindOf(f), Address: string(appendAddress(nil, f.Key)), Port: f.Port}
		row.Pools, row.Source = poolsOf(f), sourceOf(f.Masquerade)
		row.Connections = count(s.counters.counts[f.Key])
		row.Rate = perSecond(s.counters.rate([]*plan.Frontend{f}))
		if st, ok := s.status(f.Key); ok {
			row.Sign, row.Error = phaseSign(st, now)
		}
		v.Frontends = append(v.Frontends, row)
	}
}

// kindOf names what a frontend is. The address of a node port does not tell its
// family.
func kindOf(f *plan.Frontend) string {
	if f.Kind == plan.NodePort {
		return f.Kind.String() + ", " + f.Family().String()
	}
	return f.Kind.String()
}

// poolsOf says where connections to a frontend go.
func poolsOf(f *plan.Frontend) []string {
	pool := func(r *plan.Route) string {
		if len(r.Endpoints) == 0 {
			return map[plan.Verdict]string{plan.Reject: "rejected", plan.Drop: "dropped"}[r.Empty.Verdict]
		}
		here := 0
		for _, e := range r.Endpoints {
			if e.Local {
				here++
			}
		}
		return fmt.Sprintf("%s endpoints, %s here", count(len(r.Endpoints)), count(here))
	}
	if f.Outside == nil {
		return []string{pool(&f.Route)}
	}
	return []string{"inside: " + pool(&f.Route), "outside: " + pool(f.Outside)}
}

// sourceOf says whose address the endpoints see.
func sourceOf(m plan.Masquerade) string {
	return [...]string{
		plan.MasqueradeNever:      "the client's",
		plan.MasqueradeNode:       "the client's",
		plan.MasqueradeOffCluster: "a pod's own, else the node's",
		plan.MasqueradeAlways:     "the node's",
	}[m]
}

// phaseSign says how far a frontend is, and if something is wrong with that, what.
func phaseSign(s engine.FrontendStatus, now time.Time) (is sign, wrong string) {
	is = sign{busy, s.Phase.String(), "for " + duration(now.Sub(s.Since))}
	switch s.Phase {
	case engine.Programmed:
		is.Class = good
	case engine.Failed:
		is.Class, is.Word = bad, "refused"
	}
	if s.Err != nil {
		is.Class, wrong = bad, s.Err.Error()
	}
	return is, wrong
}

// ask has it explained what happens to connections from the chosen talker.
func (p *Page) ask(ctx context.Context, v *servicePage) {
	word := func(t plan.Client) bool { return t.String() == v.From }
	for _, t := range clients {
		v.Clients = append(v.Clients, clientLink{t.String(), serviceLink(v.Name) + "&from=" + t.String(), word(t)})
	}
	if !slices.ContainsFunc(clients, word) {
		v.Address = v.From
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := p.Explain(ctx, explain.Question{To: v.Name.String(), From: v.From})
	if err != nil {
		v.Complaint = err.Error()
		return
	}
	v.MorePorts = reply.Omitted
	for i := range reply.Answers {
		v.Answers = append(v.Answers, answerOf(&reply.Answers[i]))
		v.Answers[i].Open = i == 0 || !reply.Answers[i].Flows
	}
}

func answerOf(a *explain.Answer) answerView {
	v := answerView{Answer: a, Class: bad, Endpoints: a.Endpoints, More: a.Omitted}
	if a.Flows {
		v.Class = good
	}
	if over := len(v.Endpoints) - maxEndpoints; over > 0 {
		v.Endpoints, v.More = v.Endpoints[:maxEndpoints], v.More+over
	}
	var text strings.Builder
	_ = explain.Write(&text, &explain.Reply{Answers: []explain.Answer{*a}}) // a Builder takes everything
	v.Text = text.String()
	v.Title, _, _ = strings.Cut(v.Text, "\n")
	return v
}
