package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/history"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

const (
	maxAddresses = 6   // on top of the page of a Service
	maxFrontends = 200 // shown of a Service
	maxEndpoints = 100 // in the table of an answer
	askTimeout   = 5 * time.Second
)

// clients are those that a visitor can choose from.
var clients = []plan.Client{plan.PodClient, plan.NodeClient, plan.OutsideClient}

type servicePage struct {
	frame
	Name      model.Name
	Known     bool
	State     status.Condition
	Addresses []chip
	// MoreAddresses counts those that are not shown on top.
	MoreAddresses int
	Facts         []fact
	Graph         *graph // nil without traffic
	Counted       bool
	History       eventList
	Frontends     []frontendRow
	// OwnSource says that it is not known which connections are masqueraded.
	OwnSource bool
	// MoreFrontends counts those that are not shown.
	MoreFrontends int

	From    string // the client
	Address string // if that is an address
	Sender  string // who sends the connections that visitors ask for
	Clients []clientLink
	// connections are those to endpoints, nil if they are not known.
	connections map[netip.AddrPort]Connections

	Complaint string // about a question that cannot be parsed
	Answers   []answerView
	// MorePorts counts those that are not explained.
	MorePorts int
}

// fact is a property of the Service.
type fact struct{ Label, Value string }

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
	Phase                       string // how far it is on its way into the kernel
	Error                       string // why it is not there
}

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
	To      string // where a visitor can have a connection sent to, "" for nowhere
	Trial   *trial // nil if none is shown
}

func (h *Handler) service(r *http.Request) answer {
	code, page := h.servicePage(r.Context(), r.URL.Query())
	return answer{code, serviceTemplate, page}
}

// servicePage returns the page of the Service that parameters name, and its status.
func (h *Handler) servicePage(ctx context.Context, params url.Values) (code int, v *servicePage) {
	name := nameIn(params)
	report, s := h.Status(), h.snapshot(ctx)
	v = &servicePage{frame: newFrame(name.String(), report), Name: name, From: strings.TrimSpace(params.Get("from")), Counted: s.counters.counted()}
	if svc := s.find(name); svc == nil {
		v.State = condition(status.Fair, "not known", "")
	} else {
		v.Known = true
		v.listLost(s.lost(svc))
		s.inspect(func(view engine.View) { v.describe(view, s, svc, s.judge(view), report.Now) })
		if !svc.proxied() {
			v.connections = h.connections.read(ctx)
		}
	}
	v.From = cmp.Or(v.From, plan.PodClient.String())
	events := h.eventsOf(history.Query{Service: name.String(), Last: maxEvents})
	v.History = eventList{eventRows(events), true}
	if recording, ok := s.recorded(name); ok {
		v.Graph = newGraph(recording, events)
	}
	h.ask(ctx, v, h.trials.find(params.Get("tried"), name))
	if !v.Known {
		return http.StatusNotFound, v
	}
	return http.StatusOK, v
}

func (v *servicePage) describe(view engine.View, s *snapshot, svc *service, judge *verdict.Judge, now time.Time) {
	is := judge.Service(svc.Name, svc.frontends)
	v.State = conditionOf(&is)
	v.From = cmp.Or(v.From, worstOff(is.Clients))
	for _, f := range svc.sorted() {
		if at := chipOf(f); !slices.Contains(v.Addresses, at) { // node ports have two families
			v.Addresses = append(v.Addresses, at)
		}
	}
	if v.MoreAddresses = max(0, len(v.Addresses)-maxAddresses); v.MoreAddresses > 0 {
		v.Addresses = v.Addresses[:maxAddresses]
	}
	evidence := view.Evidence(svc.Name)
	limits := evidence.Limits()
	v.Facts, v.OwnSource = facts(svc, limits), limits.OwnSource
	v.listFrontends(s, svc, judge, now)
}

// worstOff returns the kind of client with the worst verdict, which visitors look for.
func worstOff(all []verdict.Client) string {
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b verdict.Client) int { return a.Word.Compare(b.Word) }).From
}

func facts(s *service, limits plan.Limits) []fact {
	all, here := plan.InUse(s.frontends)
	out := []fact{{"Endpoints", "none"}}
	if all > 0 {
		out[0].Value = fmt.Sprintf("%s, %s on this node", count(all), count(here))
	}
	if all > 1 {
		out = append(out, s.algorithm())
	}
	has := func(inside bool) bool {
		return slices.ContainsFunc(s.frontends, func(f *plan.Frontend) bool { return (f.Kind == plan.ClusterIP) == inside })
	}
	if has(true) {
		out = append(out, fact{"Internal traffic", s.InternalPolicy.String()})
	}
	if has(false) {
		out = append(out, fact{"External traffic", s.ExternalPolicy.String()})
	}
	if s.Affinity > 0 {
		lasts := duration(time.Duration(s.Affinity) * time.Second)
		if limits.NoAffinityTimeout {
			lasts = "as long as " + limits.System.String() + " decides"
		}
		out = append(out, fact{"Affinity", "by client address, for " + lasts})
	}
	if s.Filtered {
		ranges := printable.Count(len(s.SourceRanges), "source range")
		switch {
		case limits.NoSourceRanges:
			ranges = "everybody: " + limits.System.String() + " has no source ranges"
		case s.FilterAll:
			ranges += ", at all external addresses"
		case slices.ContainsFunc(s.frontends, func(f *plan.Frontend) bool { return f.OpenBeside(s.Service) }):
			ranges += ", at load balancer IPs only: everybody may connect to node ports and external IPs"
		}
		out = append(out, fact{"Admitted", ranges})
	}
	if s.HealthCheckNodePort != 0 {
		out = append(out, fact{"Health check", fmt.Sprintf("port %d", s.HealthCheckNodePort)})
	}
	return out
}

// algorithm returns how endpoints are chosen, which may not be what the Service
// asks for.
func (s *service) algorithm() fact {
	out := fact{"Algorithm", model.Random.String()}
	for _, f := range s.sorted() {
		for _, r := range f.Routes() {
			if len(r.Endpoints) == 0 {
				continue
			}
			if out.Value = r.Choice(); !strings.Contains(out.Value, r.AlgorithmText()) {
				out.Value = r.AlgorithmText() + ": " + out.Value
			}
			if r.Weighted() {
				return out
			}
		}
	}
	return out
}

// listLost adds the frontends that another Service has.
func (v *servicePage) listLost(all []plan.Lost) {
	for _, lost := range all {
		f := lost.Frontend
		v.Frontends = append(v.Frontends, frontendRow{Key: f.Key, Kind: kindOf(f), Address: string(appendAddress(nil, f.Key)), Port: f.Port,
			Owner: &lost.To, Condition: condition(status.Fair, "taken", "by another Service")})
	}
}

func (v *servicePage) listFrontends(s *snapshot, svc *service, judge *verdict.Judge, now time.Time) {
	for i, f := range svc.sorted() {
		if i == maxFrontends {
			v.MoreFrontends = len(svc.frontends) - i
			return
		}
		row := frontendRow{Key: f.Key, Kind: kindOf(f), Address: string(appendAddress(nil, f.Key)), Port: f.Port}
		row.Pools, row.Masquerade, row.MasqueradeCause = poolsOf(f), f.Masquerade.Text(), f.MasqueradeCause.Text()
		rates, known := s.counters.rates[f.Key], s.counters.known()
		row.Connections = count(s.counters.counts[f.Key].Connections)
		row.Rate, row.Refused = perSecond(rates.Connections, known), perSecond(rates.Refused.Total(), known)
		is := judge.Service(svc.Name, []*plan.Frontend{f})
		if row.Condition = conditionOf(&is); row.Condition.Text == v.State.Text {
			row.Condition.Text = "" // it is on top of the page
		}
		if st, ok := s.status(f.Key); ok {
			row.Phase = st.Phase.String() + " for " + duration(now.Sub(st.Since))
			if st.Err != nil {
				row.Error = st.Err.Error()
			}
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

// ask adds what explain says of connections from the chosen client, and what became of one
// that was sent, unless that is nil.
func (h *Handler) ask(ctx context.Context, v *servicePage, sent *trial) {
	word := func(c plan.Client) bool { return c.String() == v.From }
	for _, t := range clients {
		v.Clients = append(v.Clients, clientLink{t.String(), serviceLink(v.Name) + "&from=" + t.String(), word(t)})
	}
	v.Sender = clientTexts[plan.NodeClient.String()]
	if !slices.ContainsFunc(clients, word) {
		v.Address, v.Sender = v.From, v.From
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := h.Explain(ctx, explain.Question{To: v.Name.String(), From: v.From})
	if err != nil {
		v.Complaint = err.Error()
		return
	}
	v.MorePorts = reply.Omitted
	is := func(a explain.Answer) bool { return sent != nil && destination(&a) == sent.to }
	if sent != nil && !slices.ContainsFunc(reply.Answers, is) { // it went where other clients connect to
		if own, err := h.Explain(ctx, explain.Question{To: sent.to, From: v.From}); err == nil {
			reply.Answers = slices.Concat(own.Answers, reply.Answers)
		}
	}
	for i := range reply.Answers {
		a := &reply.Answers[i]
		var of *trial
		if is(*a) {
			of, a.Tried = sent, sent.Result
		}
		v.Answers = append(v.Answers, answerOf(a, v.connections, of))
	}
}

func answerOf(a *explain.Answer, connections map[netip.AddrPort]Connections, of *trial) answerView {
	v := answerView{Answer: a, Route: routeOf(a), Level: levelOf(a.Verdict), Endpoints: endpointRows(a.Endpoints, connections), Counted: connections != nil, More: a.Omitted,
		To: destination(a), Trial: of}
	if over := len(v.Endpoints) - maxEndpoints; over > 0 {
		v.Endpoints, v.More = v.Endpoints[:maxEndpoints], v.More+over
	}
	var text strings.Builder
	_ = explain.Write(&text, &explain.Reply{Answers: []explain.Answer{*a}}) // never fails
	v.Text = text.String()
	v.Title, _, _ = strings.Cut(v.Text, "\n")
	return v
}
