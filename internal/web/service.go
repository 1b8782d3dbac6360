package web

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/engine"
	"sluice/internal/explain"
	"sluice/internal/history"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/status"
)

const (
	maxFrontends = 200 // shown of a Service
	maxEndpoints = 100 // in the table of an answer
	askTimeout   = 5 * time.Second
)

// clients are those that a visitor can choose from.
var clients = []plan.Client{plan.PodClient, plan.NodeClient, plan.OutsideClient}

// servicePage is the page of one Service.
type servicePage struct {
	frame
	Name      model.Name
	Known     bool
	State     status.Condition
	Facts     []tile
	Graph     *graph // nil without traffic
	Counted   bool
	History   eventList
	Frontends []frontendRow
	// MoreFrontends counts those that are not shown.
	MoreFrontends int

	From    string // the client
	Address string // if that is an address
	Clients []clientLink
	// connections are those to endpoints, nil if they are not known.
	connections map[netip.AddrPort]Connections

	Complaint string // about a question that cannot be parsed
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
	// Masquerade is whose connections are masqueraded, and MasqueradeCause why.
	Masquerade, MasqueradeCause string
	Connections, Rate, Refused  string
	Owner                       *model.Name // that has it instead
	Condition                   status.Condition
	Error                       string // why it is not in the kernel
}

// answerView is an answer of explain.
type answerView struct {
	*explain.Answer
	Route     *route
	Level     status.Level
	Title     string
	Endpoints []endpointRow
	// Counted says that the connections to the endpoints are known.
	Counted bool
	More    int
	Text    string
	Open    bool // the text is shown unfolded
}

func (h *Handler) service(r *http.Request) answer {
	params := r.URL.Query()
	name := model.Name{Namespace: params.Get("namespace"), Name: params.Get("name")}
	from := strings.TrimSpace(params.Get("from"))
	if from == "" {
		from = plan.PodClient.String()
	}
	report, s := h.Status(), h.snapshot(r.Context())
	v := &servicePage{frame: newFrame(name.String(), report), Name: name, From: from, Counted: s.counters.counted()}
	if svc := s.find(name); svc == nil {
		v.State = condition(status.Fair, "not known", "")
	} else {
		v.Known = true
		v.State = s.condition(svc)
		v.Facts = facts(svc)
		v.listFrontends(s, svc, report.Now)
		if !svc.relayed() {
			v.connections = h.census.read(r.Context())
		}
	}
	events := h.eventsOf(history.Query{Service: name, Most: maxEvents})
	v.History = eventList{eventRows(events), true}
	if recording, ok := s.recorded(name); ok {
		v.Graph = newGraph(recording, events)
	}
	h.ask(r.Context(), v)
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
	affinity := tile{"Affinity", "None", "for each connection anew"}
	if s.Affinity > 0 {
		affinity.Value, affinity.Note = "ClientIP", "for "+duration(time.Duration(s.Affinity)*time.Second)
	}
	out = append(out, s.algorithm(), affinity)
	if s.Filtered {
		out = append(out, tile{"Sources", count(len(s.SourceRanges)), "source ranges admitted"})
	}
	if s.HealthCheckNodePort != 0 {
		out = append(out, tile{"Health check", fmt.Sprint(s.HealthCheckNodePort), "node port"})
	}
	return out
}

// algorithm returns how endpoints are chosen, which may not be what the Service
// asks for.
func (s *service) algorithm() tile {
	t := tile{"Algorithm", model.Random.String(), "any of them, evenly"}
	for _, f := range s.sorted() {
		for _, r := range f.Routes() {
			if len(r.Endpoints) == 0 {
				continue
			}
			t.Value, t.Note = r.AlgorithmText(), r.Choice()
			if r.Weighted() {
				return t
			}
		}
	}
	return t
}

func (v *servicePage) listFrontends(s *snapshot, svc *service, now time.Time) {
	for _, lost := range s.lost(svc) {
		f := &lost.Frontend
		v.Frontends = append(v.Frontends, frontendRow{Key: f.Key, Kind: kindOf(f), Address: string(appendAddress(nil, f.Key)), Port: f.Port,
			Owner: &lost.owner, Condition: condition(status.Fair, "taken", "by another Service")})
	}
	for i, f := range svc.sorted() {
		if i == maxFrontends {
			v.MoreFrontends = len(svc.frontends) - i
			return
		}
		row := frontendRow{Key: f.Key, Kind: kindOf(f), Address: string(appendAddress(nil, f.Key)), Port: f.Port}
		row.Pools, row.Masquerade, row.MasqueradeCause = poolsOf(f), f.Masquerade.Text(), f.MasqueradeCause.Text()
		rates, known := s.counters.rates[f.Key], s.counters.known()
		row.Connections = count(s.counters.counts[f.Key].Connections)
		row.Rate, row.Refused = perSecond(rates.connections, known), perSecond(rates.refused.total(), known)
		if st, ok := s.status(f.Key); ok {
			row.Condition, row.Error = phaseCondition(st, now)
		}
		v.Frontends = append(v.Frontends, row)
	}
}

// kindOf returns the kind of a frontend, with the family of a node port, which its
// address does not show.
func kindOf(f *plan.Frontend) string {
	if f.Kind == plan.NodePort {
		return f.Kind.String() + ", " + f.Family().String()
	}
	return f.Kind.String()
}

// poolsOf describes where connections to a frontend go.
func poolsOf(f *plan.Frontend) []string {
	pool := func(r *plan.Route) string {
		if len(r.Endpoints) == 0 {
			return r.Empty.Text()
		}
		here := 0
		for _, e := range r.Endpoints {
			if e.Local {
				here++
			}
		}
		return fmt.Sprintf("%s%s, %s here", count(len(r.Endpoints)), plural(len(r.Endpoints), " endpoint"), count(here))
	}
	if f.Outside == nil {
		return []string{pool(&f.Route)}
	}
	return []string{"inside: " + pool(&f.Route), "outside: " + pool(f.Outside)}
}

// phaseCondition returns the condition of a frontend, and the error if there is one.
func phaseCondition(s engine.FrontendStatus, now time.Time) (is status.Condition, wrong string) {
	is = condition(status.Busy, s.Phase.String(), "for "+duration(now.Sub(s.Since)))
	switch s.Phase {
	case engine.Programmed:
		is.Level = status.Good
	case engine.Failed:
		is.Level, is.Word = status.Bad, "refused"
	}
	if s.Err != nil {
		is.Level, wrong = status.Bad, s.Err.Error()
	}
	return is, wrong
}

// ask adds what explain says of connections from the chosen client.
func (h *Handler) ask(ctx context.Context, v *servicePage) {
	word := func(c plan.Client) bool { return c.String() == v.From }
	for _, t := range clients {
		v.Clients = append(v.Clients, clientLink{t.String(), serviceLink(v.Name) + "&from=" + t.String(), word(t)})
	}
	if !slices.ContainsFunc(clients, word) {
		v.Address = v.From
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := h.Explain(ctx, explain.Question{To: v.Name.String(), From: v.From})
	if err != nil {
		v.Complaint = err.Error()
		return
	}
	v.MorePorts = reply.Omitted
	for i := range reply.Answers {
		v.Answers = append(v.Answers, answerOf(&reply.Answers[i], v.connections))
		v.Answers[i].Open = i == 0 || !reply.Answers[i].Flows
	}
}

func answerOf(a *explain.Answer, connections map[netip.AddrPort]Connections) answerView {
	v := answerView{Answer: a, Route: routeOf(a), Level: levelOf(a.Verdict), Endpoints: endpointRows(a.Endpoints, connections), Counted: connections != nil, More: a.Omitted}
	if over := len(v.Endpoints) - maxEndpoints; over > 0 {
		v.Endpoints, v.More = v.Endpoints[:maxEndpoints], v.More+over
	}
	var text strings.Builder
	_ = explain.Write(&text, &explain.Reply{Answers: []explain.Answer{*a}}) // never fails
	v.Text = text.String()
	v.Title, _, _ = strings.Cut(v.Text, "\n")
	return v
}
