package web

import (
	"fmt"
	"net/http"
	"slices"

	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/plan"
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
	Traffic      *graph // nil before the first figures
	Plot         *plot
	Details      []string // of the proxy itself
	Windows      []window
	Columns      []column
	Namespaces   []string // that can be selected
	Kinds        []kind
	Query        query
	Counted      bool
	Rows         []row
	First, Last  int // numbers of the rows
	Found, Known int
	// Files says that Services are read from files, not from an API server.
	Files   bool
	Earlier *query
	Later   *query
}

// column is one of the list, and the order that its title leads to; "-" if there is none. Words
// describe the order where there are no columns.
type column struct {
	Title, Order, Words string
	Number              bool
}

// Sort is the value of aria-sort.
func (c column) Sort() string {
	if c.Order == orderByName {
		return "ascending"
	}
	return "descending"
}

func columns(counted bool) []column {
	out := []column{{Title: "Service", Order: orderByName, Words: "By name"}, {Title: "Frontends", Order: "-"},
		{Title: "Endpoints", Order: "endpoints", Words: "Most endpoints first", Number: true}}
	if counted {
		out = append(out, column{Title: "New conn./s", Order: "rate", Words: "Most connections first", Number: true},
			column{Title: "Refused/s", Order: "refused", Words: "Most refusals first", Number: true})
	}
	return append(out, column{Title: "State", Order: orderByState, Words: "Broken and busy first"})
}

// tile is one number with its label.
type tile struct {
	Label, Value, Note string
	Alarm              bool // the note is bad news
}

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
		Details: details(report),
		Windows: windows,
		Query:   q,
		Counted: s.counters.counted(),
		Known:   len(s.services),
		Files:   report.APIServer == nil,
	}
	if recording, ok := h.recorder.all(); ok {
		v.Traffic = newNodeGraph(recording, report.Changes)
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

// tiles returns four, whatever the mode counts, so that they fill their rows.
func tiles(r *status.Report, s *snapshot) []tile {
	faulty := 0
	for i := range s.verdicts() {
		if s.verdicts()[i].Faulty() {
			faulty++
		}
	}
	services := tile{Label: "Services", Value: count(len(s.services)), Note: "none is broken"}
	if faulty > 0 {
		services.Note, services.Alarm = count(faulty)+" broken", true
	}
	endpoints := tile{Label: "Endpoints", Value: count(r.Endpoints), Note: "in " + count(r.Slices) + plural(r.Slices, " slice")}
	if !s.counters.counted() {
		return []tile{services, {Label: "Without endpoints", Value: count(s.idle), Note: plural(s.idle, "Service")}, endpoints,
			{Label: "Frontends", Value: count(r.Frontends.Desired), Note: "addresses and ports"}}
	}
	total, known := s.counters.total(), s.counters.known()
	return []tile{services, endpoints, {Label: "Connections", Value: perSecond(total.Connections, known), Note: "new, per second"},
		{Label: "Refused", Value: perSecond(total.Refused.Total(), known), Note: "attempts per second"}}
}

// details tells what the proxy does.
func details(r *status.Report) []string {
	out := []string{fmt.Sprintf("%s of %s programmed", count(r.Frontends.Programmed), printable.Count(r.Frontends.Desired, "frontend"))}
	if len(r.Changes) > 0 {
		last := &r.Changes[0]
		out = append(out, fmt.Sprintf("the last change took %s, %s ago", printable.Duration(latency(last)), duration(r.Now.Sub(last.At))))
	}
	if r.Relay != nil {
		out = append(out, r.Relay.String())
	}
	if r.Draining != nil {
		out = append(out, r.Draining.String())
	}
	return out
}

func (s *snapshot) row(svc *service) row {
	r := row{Name: svc.Name, Condition: conditionOf(s.verdict(svc))}
	for i, f := range svc.sorted() {
		if i == maxChips {
			r.More = len(svc.frontends) - i
			break
		}
		r.Chips = append(r.Chips, chipOf(f))
	}
	r.Endpoints, r.Here = plan.InUse(svc.frontends)
	for _, lost := range s.lost(svc) {
		c := chipOf(lost.Frontend)
		c.Owner = lost.To.String()
		r.Chips = append(r.Chips, c)
	}
	rates, known := s.counters.of(svc.frontends), s.counters.known()
	r.Rate, r.Refused = perSecond(rates.Connections, known), perSecond(rates.Refused.Total(), known)
	r.Refuses = rates.Refused.Total() > 0
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
