package web

import (
	"cmp"
	"net/http"
	"slices"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/printable"
	"sluice/internal/status"
	"sluice/internal/verdict"
)

const (
	maxChips      = 4   // frontends of a Service that the list shows
	maxNamespaces = 100 // that can be selected
)

// overview is the first page.
type overview struct {
	frame
	Tiles  []tile
	Groups []group // of problems
	// Problems counts all of them, and MoreProblems those in groups that are not shown.
	Problems     int
	MoreProblems int
	Plot         *plot
	Windows      []window
	Columns      []column
	Namespaces   []string // that can be selected
	Kinds        []kind
	Query        query
	Counted      bool
	Rows         []row
	First, Last  int // numbers of the rows
	Found, Known int
	Earlier      *query
	Later        *query
}

// column is one of the list, and the order that its title leads to; "-" if there is none.
type column struct {
	Title, Order string
	Number       bool
}

func columns(counted bool) []column {
	out := []column{{"Service", orderByName, false}, {"Frontends", "-", false}, {"Endpoints", "endpoints", true}}
	if counted {
		out = append(out, column{"New conn./s", "rate", true}, column{"Refused/s", "refused", true})
	}
	return append(out, column{"State", "state", false})
}

// tile is one number with its label.
type tile struct{ Label, Value, Note string }

// row is a Service in the list.
type row struct {
	model.Name
	Chips           []chip
	More            int // frontends without a chip
	Endpoints, Here int
	Rate, Refused   string
	Refuses         bool
	Spark           *graph // nil without traffic
	Condition       status.Condition
}

// chip is a frontend in short form. Owner is the Service that has it instead, "" if
// it is the Service's own.
type chip struct{ Kind, Address, Port, Owner string }

func (h *Handler) overview(r *http.Request) answer {
	report, s := h.Status(), h.snapshot(r.Context())
	q := readQuery(r.URL.Query())
	v := &overview{
		frame:   newFrame("Services", report),
		Tiles:   tiles(report, s),
		Plot:    newPlot(report.Changes, report.Now, windowOf(q.Window)),
		Windows: windows,
		Query:   q,
		Counted: s.counters.counted(),
		Known:   len(s.services),
	}
	v.Columns, v.Kinds = columns(v.Counted), kinds
	v.Namespaces = s.namespaces[:min(len(s.namespaces), maxNamespaces)]
	if q.Namespace != "" && !slices.Contains(v.Namespaces, q.Namespace) {
		v.Namespaces = append(slices.Clone(v.Namespaces), q.Namespace)
	}
	v.listProblems(s.problems(report))
	v.list(s)
	return answer{http.StatusOK, overviewTemplate, v}
}

// listProblems adds the first groups of problems.
func (v *overview) listProblems(all []problem) {
	v.Problems, v.Groups = len(all), grouped(all, maxMembers)
	for i := maxGroups; i < len(v.Groups); i++ {
		v.MoreProblems += len(v.Groups[i].Members) + v.Groups[i].More
	}
	v.Groups = v.Groups[:min(len(v.Groups), maxGroups)]
}

// list adds the Services of the query. A page number beyond the end means the last
// page.
func (v *overview) list(s *snapshot) {
	found := s.search(v.Query)
	v.Found = len(found)
	pages := max(1, (v.Found+rowsPerPage-1)/rowsPerPage)
	v.Query.Page = min(v.Query.Page, pages)
	v.First = (v.Query.Page - 1) * rowsPerPage
	v.Last = min(v.First+rowsPerPage, v.Found)
	for _, svc := range found[v.First:v.Last] {
		v.Rows = append(v.Rows, s.row(svc))
	}
	v.First = min(v.First+1, v.Last) // from 1
	if v.Query.Page > 1 {
		earlier := v.Query.WithPage(v.Query.Page - 1)
		v.Earlier = &earlier
	}
	if v.Query.Page < pages {
		later := v.Query.WithPage(v.Query.Page + 1)
		v.Later = &later
	}
}

func tiles(r *status.Report, s *snapshot) []tile {
	out := []tile{
		{"Services", count(len(s.services)), count(s.idle) + " without endpoints"},
		{"Frontends", count(r.Frontends.Programmed), "programmed of " + count(r.Frontends.Desired)},
		{"Endpoints", count(r.Endpoints), "in " + count(r.Slices) + plural(r.Slices, " slice")},
	}
	if s.counters.counted() {
		total, known := s.counters.total(), s.counters.known()
		out = append(out, tile{"Connections", perSecond(total.connections, known), "new, per second"},
			tile{"Refused", perSecond(total.refused.total(), known), "attempts per second"})
	}
	if f := r.Relay; f != nil {
		out = append(out, tile{"Forwarding", count(f.Connections), "connections through this process, at most " + count(f.Limit)})
	}
	if d := r.Draining; d != nil {
		out = append(out, tile{"Draining", count(d.Connections), "connections of an earlier kube-proxy, until " + d.Until.UTC().Format("15:04:05 UTC")})
	}
	last := tile{"Last change took", "–", "none yet"}
	if len(r.Changes) > 0 {
		change := &r.Changes[0]
		last.Value, last.Note = printable.Duration(latency(change)), duration(r.Now.Sub(change.At))+" ago"
	}
	return append(out, last)
}

func (s *snapshot) row(svc *service) row {
	r := row{Name: svc.Name, Condition: s.condition(svc)}
	for i, f := range svc.sorted() {
		if i == maxChips {
			r.More = len(svc.frontends) - i
			break
		}
		r.Chips = append(r.Chips, chipOf(f))
	}
	r.Endpoints, r.Here = svc.endpoints()
	for _, lost := range s.lost(svc) {
		c := chipOf(&lost.Frontend)
		c.Owner = lost.owner.String()
		r.Chips = append(r.Chips, c)
	}
	rates, known := s.counters.of(svc.frontends), s.counters.known()
	r.Rate, r.Refused = perSecond(rates.connections, known), perSecond(rates.refused.total(), known)
	r.Refuses = rates.refused.total() > 0
	if recording, ok := s.recorded(svc.Name); ok {
		r.Spark = spark(recording)
	}
	return r
}

func chipOf(f *plan.Frontend) chip {
	kind := [...]string{plan.ClusterIP: "", plan.LoadBalancerIP: "LB", plan.ExternalIP: "external", plan.NodePort: "node"}[f.Kind]
	address := string(appendAddress(nil, f.Key))
	if tcp := "/" + model.TCP.String(); len(address) > len(tcp) && f.Protocol == model.TCP {
		address = address[:len(address)-len(tcp)]
	}
	return chip{Kind: kind, Address: address, Port: f.Port}
}

// condition returns the verdict on a Service.
func (s *snapshot) condition(svc *service) (c status.Condition) {
	s.inspect(func(v engine.View) {
		found := s.judge(v).Service(svc.Name, svc.frontends)
		c = condition(levelOf(found.Word), found.Word.Text(), cmp.Or(found.Why, "nothing is known against it"))
	})
	return c
}

// levelOf is how good a verdict is.
func levelOf(w verdict.Word) status.Level {
	switch {
	case w.Failing():
		return status.Bad
	case w == verdict.WorksForSome:
		return status.Fair
	case w == verdict.Works:
		return status.Good
	}
	return status.Busy
}
