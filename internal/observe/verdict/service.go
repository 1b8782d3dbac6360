package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/plan"
)

// Service is the verdict on a Service. The names of its fields in JSON are an interface and
// never change.
type Service struct {
	Word  Word  `json:"verdict"`
	Cause Cause `json:"cause,omitempty"`
	// Why says in a few words what is wrong, "" if it works.
	Why string `json:"why,omitempty"`
	// Since is when the first connection failed, if traffic shows it.
	Since time.Time `json:"since,omitzero"`
	// Clients has the verdict for each kind of client that the Service is for.
	Clients []Client `json:"clients,omitempty"`
}

// Faulty reports whether a Service does not work, or not for all that it is meant for. On a
// node without an endpoint of it, a Service with traffic policy Local is not meant for clients
// outside.
func (s *Service) Faulty() bool {
	local := s.Word == WorksForSome && s.Cause == causeOf(plan.NoLocalEndpoints)
	return s.Word != Works && s.Word != Unknown && !local
}

// Client is the verdict for one kind of client.
type Client struct {
	From  string    `json:"from"` // pod, node or outside
	Word  Word      `json:"verdict"`
	Cause Cause     `json:"cause,omitempty"`
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Remedy is what to do about it, if the cause is this node.
	Remedy string `json:"remedy,omitempty"`
}

// Judge judges the Services of a view.
type Judge struct {
	View engine.View
	// Phase returns how far a frontend is on its way into the kernel.
	Phase func(plan.Key) (engine.FrontendStatus, bool)
	// Answers is what traffic shows of an endpoint; nil if nothing can be seen.
	Answers func(evidence.To) evidence.Report
	// AnswersIn is what traffic shows of an endpoint at some ports together; nil if nothing can be seen.
	AnswersIn func(evidence.To, model.PortRange) evidence.Report
	// Blocked returns what on this node keeps connections on a path from being answered, nil if
	// nothing does; nil if that is not known.
	Blocked func(nodeproblem.Path) *nodeproblem.Obstacle
	// IsNode reports whether an address is the node's own.
	IsNode func(netip.Addr) bool
}

// clients are the kinds of them.
var clients = [...]plan.Client{plan.PodClient, plan.NodeClient, plan.OutsideClient}

// finding is what is known of one way to a Service.
type finding struct {
	word  Word
	cause Cause
	why   string
	since time.Time
	// remedy is what to do about it, if the cause is this node.
	remedy string
}

func (f finding) client(from plan.Client) Client {
	return Client{from.String(), f.word, f.cause, f.why, f.since, f.remedy}
}

var works = finding{word: Works}

// merge is the finding for two ways together: it keeps the cause of the worse one.
func (f finding) merge(o finding) finding {
	if f.word == "" {
		return o
	}
	worse := f
	if o.word.Compare(f.word) < 0 || o.word == f.word && f.cause == "" {
		worse = o
	}
	worse.word = both(f.word, o.word)
	return worse
}

// Service returns the verdict on a Service of the view.
func (j *Judge) Service(name model.Name, frontends []*plan.Frontend) Service {
	if len(frontends) == 0 {
		return j.withoutFrontends(name)
	}
	out := j.Frontends(frontends)
	if out.Word != Works || len(j.View.Desired.Problems[model.ServiceObject(name)]) == 0 { // what it lacks has been reported
		return out
	}
	e := j.View.Evidence(name)
	if lost := e.Lost(); len(lost) > 0 {
		out.Word, out.Cause, out.Why = WorksForSome, AddressTaken, fmt.Sprintf("Service %s has %v", lost[0].To, lost[0].Key)
	} else if ports := e.Unserved(); len(ports) > 0 {
		out.Word, out.Cause, out.Why = WorksForSome, PortsNotServed, "not at "+printable.List(ports, func(port string) string { return port })
	}
	return out
}

// Frontends returns the verdict on some frontends of a Service.
func (j *Judge) Frontends(frontends []*plan.Frontend) (out Service) {
	var all finding
	for _, from := range clients {
		f := j.clients(from, frontends)
		if f.word == "" {
			continue // it is not for them
		}
		out.Clients = append(out.Clients, f.client(from))
		all = all.merge(f)
	}
	if all.word == Untouched { // there is nothing else of it, and nobody knows of others that have its addresses
		all.word = Refused
	}
	out.Word, out.Cause, out.Why, out.Since = all.word, all.cause, all.why, all.since
	if out.Word == WorksForSome {
		out.Why = out.whose()
	}
	return out
}

// whose says which clients fail, if not all kinds do for the same reason.
func (s *Service) whose() string {
	byWhy := map[string][]string{}
	var order []string
	for _, c := range s.Clients {
		if c.Word == Works || c.Word == Untouched {
			continue
		}
		if byWhy[c.Why] == nil {
			order = append(order, c.Why)
		}
		byWhy[c.Why] = append(byWhy[c.Why], clientText(c.From))
	}
	if len(order) == 1 && len(byWhy[order[0]]) == len(s.Clients) {
		return order[0]
	}
	var parts []string
	for _, why := range order {
		parts = append(parts, "not for "+strings.Join(byWhy[why], " and ")+": "+why)
	}
	return strings.Join(parts, "; ")
}

func clientText(from string) string {
	return map[string]string{plan.PodClient.String(): "pods", plan.NodeClient.String(): "this node", plan.OutsideClient.String(): "clients outside"}[from]
}

// withoutFrontends is the verdict on a Service that nobody can connect to.
func (j *Judge) withoutFrontends(name model.Name) Service {
	e := j.View.Evidence(name)
	if e.Service == nil {
		return Service{Word: Refused, Cause: InvalidObject, Why: "the object is malformed"}
	}
	if lost := e.Lost(); len(lost) > 0 {
		return Service{Word: Refused, Cause: AddressTaken, Why: "Service " + lost[0].To.String() + " has its addresses"}
	}
	return Service{Word: Refused, Cause: NoPorts, Why: "it has no address and port here"}
}

// clients judges all ways of a kind of client to a Service.
func (j *Judge) clients(from plan.Client, frontends []*plan.Frontend) (all finding) {
	for _, f := range frontends {
		if uses(from, f.Kind) {
			all = all.merge(j.frontend(from, f, 0))
		}
	}
	if from != plan.OutsideClient && all.word == "" { // there is no ClusterIP
		for _, f := range frontends {
			all = all.merge(j.frontend(from, f, 0))
		}
	}
	return all
}

func uses(from plan.Client, k plan.Kind) bool {
	return (from == plan.OutsideClient) != (k == plan.ClusterIP)
}

// Packet returns the verdict on what plan decided about a packet to a frontend.
func (j *Judge) Packet(d *plan.Decision) Client {
	port := d.Packet.To.Port
	f := j.frontend(d.Packet.From, d.Frontend, port)
	switch {
	case d.Verdict != plan.Forward && f.word != Unknown && f.cause != ProgrammingFailed:
		f = finding{word: Refused, cause: causeOf(d.Cause), why: f.why}
	case d.Loopback: // by the proxy, whatever the kernel does
		f = j.traffic(d.Packet.From, d.Frontend, d.Route, port, true)
	}
	return f.client(d.Packet.From)
}

// frontend judges connections of a kind of client to a frontend: to a port of it, or, if that is 0, to all.
func (j *Judge) frontend(from plan.Client, f *plan.Frontend, port uint16) finding {
	if s, ok := j.Phase(f.Key); ok {
		switch {
		case s.Phase == engine.Failed:
			return finding{word: NoAnswer, cause: ProgrammingFailed, why: j.system(f).String() + " refused a frontend", since: s.Since}
		case s.Phase == engine.Pending:
			return finding{word: Unknown, cause: NotProgrammed, why: "not in " + j.system(f).String() + " yet"}
		}
	}
	route := &f.Route
	if f.Outside != nil && from == plan.OutsideClient {
		route = f.Outside
	}
	if len(route.Endpoints) == 0 {
		out := finding{word: Refused, cause: causeOf(route.Empty.Cause), why: j.empty(f, route)}
		if route.Empty.Verdict == plan.Pass {
			out.why += ", and packets are left alone"
			if !j.limits(f).NoRefusal { // because the Service asks for it
				out.word = Untouched
			}
		}
		return out
	}
	if found := j.blocked(from, f, route, port); found.word != "" {
		return found
	}
	return j.traffic(from, f, route, port, f.ProxyConnects)
}

// system is what a frontend is programmed in.
func (j *Judge) system(f *plan.Frontend) plan.System { return j.limits(f).System }

func (j *Judge) limits(f *plan.Frontend) plan.Limits {
	e := j.View.Evidence(f.Service)
	return e.Limits()
}

// empty says why a route has no endpoint.
func (j *Judge) empty(f *plan.Frontend, route *plan.Route) string {
	if route.Empty.Cause == plan.NoLocalEndpoints {
		return "no endpoint on this node"
	}
	e := j.View.Evidence(f.Service)
	pool := e.PoolDecision(f)
	switch {
	case len(e.Slices) == 0:
		return "no EndpointSlice"
	case pool == nil || len(pool.Endpoints) == 0:
		return "no endpoints"
	}
	counts := map[plan.Reason]int{}
	for i := range pool.Endpoints {
		counts[pool.Endpoints[i].InCluster]++
	}
	reasons := make([]plan.Reason, 0, len(counts))
	for why := range counts {
		reasons = append(reasons, why)
	}
	slices.SortFunc(reasons, func(a, b plan.Reason) int { return cmp.Or(counts[b]-counts[a], int(a)-int(b)) })
	return fmt.Sprintf("%s %s", printable.Count(counts[reasons[0]], "endpoint"), reasons[0].Text())
}

// blocked judges a route by what is in the way on this node. Endpoints that are the node's own
// are reached on another path than others.
func (j *Judge) blocked(from plan.Client, f *plan.Frontend, route *plan.Route, port uint16) finding {
	if j.Blocked == nil {
		return finding{}
	}
	var by *nodeproblem.Obstacle
	stopped := 0
	others, own := nodeproblem.PathTo(from, f, route, false), nodeproblem.PathTo(from, f, route, true)
	for _, e := range route.Endpoints {
		path := others
		if j.IsNode(e.Addr()) {
			path = own
		}
		path.To, path.Protocol = e.At(port), f.Protocol
		o := j.Blocked(path)
		if o == nil {
			continue
		}
		if !o.Partial {
			stopped++
		}
		if by == nil || by.Partial && !o.Partial {
			by = o
		}
	}
	if by == nil || !by.Partial && f.ProxyConnects && stopped < min(len(route.Endpoints), plan.ProxyTries) {
		return finding{} // the proxy tries others
	}
	out := finding{word: WorksForSome, cause: Cause(by.Kind), why: by.Why, remedy: by.Remedy}
	switch {
	case stopped == len(route.Endpoints):
		out.word = NoAnswer
	case stopped > 0:
		out.why = fmt.Sprintf("%s, on the way to %d of %d endpoints", by.Why, stopped, len(route.Endpoints))
	}
	return out
}

// traffic judges a route by what clients met there. If the proxy itself connects, others are tried
// in place of endpoints that do not take them.
func (j *Judge) traffic(from plan.Client, f *plan.Frontend, route *plan.Route, port uint16, proxyConnects bool) finding {
	if j.Answers == nil {
		return works
	}
	var silent, resets, flaky int
	var since time.Time
	var attempts uint64
	for _, e := range route.Endpoints {
		r := j.answers(from, f, e.At(port))
		switch r.State {
		case evidence.Fine:
			continue
		case evidence.Silent:
			silent++
		case evidence.Resets:
			resets++
		case evidence.Flaky:
			flaky++
		}
		attempts += r.Failed
		if since.IsZero() || r.Since.Before(since) {
			since = r.Since
		}
	}
	failing := silent + resets + flaky
	if failing == 0 || proxyConnects && failing < min(len(route.Endpoints), plan.ProxyTries) {
		return works
	}
	out := finding{word: WorksForSome, cause: EndpointSilent, since: since}
	if resets > silent {
		out.cause = EndpointResets
	}
	if silent+resets == len(route.Endpoints) {
		out.word = NoAnswer
	}
	out.why = trafficText(silent, resets, flaky, len(route.Endpoints), attempts, since)
	return out
}

// answers is what is known of an endpoint for a kind of client. If none of them was seen to get
// an answer, it is what others met.
func (j *Judge) answers(from plan.Client, f *plan.Frontend, at netip.AddrPort) evidence.Report {
	answers := j.Answers
	if at.Port() == 0 { // any of a range
		answers = func(to evidence.To) evidence.Report { return j.AnswersIn(to, f.Ports()) }
	}
	to := evidence.To{AddrPort: at, Protocol: f.Protocol, From: from}
	own := answers(to)
	if own.State != evidence.Fine || !own.LastAnswer.IsZero() {
		return own
	}
	for _, to.From = range clients {
		if r := answers(to); r.State.Failing() {
			return r
		}
	}
	return own
}

func trafficText(silent, resets, flaky, of int, attempts uint64, since time.Time) string {
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 0:
		case n == of && of == 1:
			parts = append(parts, "the endpoint "+one)
		case n == of:
			parts = append(parts, fmt.Sprintf("all %d endpoints %s", of, many))
		case n == 1:
			parts = append(parts, fmt.Sprintf("1 of %d endpoints %s", of, one))
		default:
			parts = append(parts, fmt.Sprintf("%d of %d endpoints %s", n, of, many))
		}
	}
	add(silent, "does not answer", "do not answer")
	add(resets, "refuses connections", "refuse connections")
	add(flaky, "answers only some connections", "answer only some connections")
	return fmt.Sprintf("%s, %s since %s", strings.Join(parts, ", "), printable.Count(int(attempts), "failed attempt"), since.UTC().Format("15:04:05 UTC"))
}

// Portion is how many Services are judged at a time: planning waits meanwhile.
const Portion = 256

// All returns the verdict on each Service, also on those that were refused.
func All(e engine.Inspector, judge func(engine.View) *Judge) map[model.Name]Service {
	var names []model.Name
	refused := map[model.Name]bool{}
	e.Inspect(func(v engine.View) {
		names = slices.Collect(maps.Keys(v.State.Services()))
		for _, p := range v.Desired.Invalid {
			if name, ok := p.Object.Service(); ok && v.State.Service(name) == nil && !refused[name] {
				refused[name] = true
				names = append(names, name)
			}
		}
	})
	out := make(map[model.Name]Service, len(names))
	for some := range slices.Chunk(names, Portion) {
		e.Inspect(func(v engine.View) {
			j := judge(v)
			for _, name := range some {
				if v.State.Service(name) != nil || refused[name] { // it was not deleted meanwhile
					out[name] = j.Service(name, v.Planner.Frontends(name))
				}
			}
		})
	}
	return out
}
