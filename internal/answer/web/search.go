package web

import (
	"bytes"
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

const (
	// rowsPerPage is how many Services a page shows.
	rowsPerPage = 50
	// maxSearchLen is enough for an address and the longest name.
	maxSearchLen = 320
)

// Which Services to show, and in which order.
const (
	showAll     = ""
	showFailing = "failing"
	showEmpty   = "empty"
	// By default the broken Services are first, and then the busy ones.
	orderByState = ""
	orderByName  = "name"
)

// orders are the other orders, all with the highest first.
var orders = map[string]func(*snapshot, *service) float64{
	orderByName: func(*snapshot, *service) float64 { return 0 },
	"rate":      func(s *snapshot, svc *service) float64 { return s.counters.of(svc.frontends).Connections },
	"refused":   func(s *snapshot, svc *service) float64 { return s.counters.of(svc.frontends).Refused.Total() },
	"endpoints": func(_ *snapshot, svc *service) float64 { all, _ := plan.InUse(svc.frontends); return float64(all) },
}

// kinds are the kinds of frontends that a Service can be selected by, in the URL.
var kinds = []kind{{"clusterip", "ClusterIP", plan.ClusterIP}, {"nodeport", "NodePort", plan.NodePort},
	{"loadbalancer", "LoadBalancer", plan.LoadBalancerIP}, {"externalip", "ExternalIP", plan.ExternalIP}}

type kind struct {
	Name, Text string
	is         plan.Kind
}

// query selects Services of the list.
type query struct {
	Text      string
	Namespace string
	Kind      string
	Show      string
	Order     string
	// Window is that of the plot above the list.
	Window string
	Page   int // from 1
}

// readQuery parses the parameters of a request, and ignores invalid ones.
func readQuery(v url.Values) query {
	q := query{Text: strings.TrimSpace(v.Get("q")), Page: 1}
	if len(q.Text) > maxSearchLen {
		q.Text = strings.ToValidUTF8(q.Text[:maxSearchLen], "")
	}
	if show := v.Get("show"); show == showFailing || show == showEmpty {
		q.Show = show
	}
	if namespace := v.Get("namespace"); len(namespace) <= maxSearchLen {
		q.Namespace = namespace
	}
	if is := func(k kind) bool { return k.Name == v.Get("kind") }; slices.ContainsFunc(kinds, is) {
		q.Kind = v.Get("kind")
	}
	if _, known := orders[v.Get("order")]; known {
		q.Order = v.Get("order")
	}
	q.Window = windowOf(v.Get("window")).Name
	if n, err := strconv.Atoi(v.Get("page")); err == nil {
		q.Page = max(1, n)
	}
	return q
}

// Link is the URL of the list.
func (q query) Link() string {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("q", q.Text)
	set("namespace", q.Namespace)
	set("kind", q.Kind)
	set("show", q.Show)
	set("order", q.Order)
	set("window", q.Window)
	if q.Page > 1 {
		set("page", strconv.Itoa(q.Page))
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// WithShow, WithOrder, WithWindow and WithPage return the query with one part changed.
func (q query) WithShow(show string) query   { q.Show, q.Page = show, 1; return q }
func (q query) WithOrder(order string) query { q.Order, q.Page = order, 1; return q }
func (q query) WithWindow(w string) query    { q.Window = w; return q }
func (q query) WithPage(page int) query      { q.Page = page; return q }

// search returns the Services that match a query, in its order.
func (s *snapshot) search(q query) []*service {
	words := newSearch(q.Text)
	var out []*service
	for i := range s.services {
		svc := &s.services[i]
		if q.admits(svc) && s.shown(svc, q.Show) && words.matches(svc) {
			out = append(out, svc)
		}
	}
	if value := orders[q.Order]; value != nil {
		s.sort(out, value)
	} else {
		s.sortByState(out)
	}
	return out
}

func (q *query) admits(svc *service) bool {
	if q.Namespace != "" && svc.Name.Namespace != q.Namespace {
		return false
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.Name == q.Kind })
	return i < 0 || slices.ContainsFunc(svc.frontends, func(f *plan.Frontend) bool { return f.Kind == kinds[i].is })
}

func (s *snapshot) shown(svc *service, show string) bool {
	switch show {
	case showFailing:
		return s.verdict(svc).Faulty() || s.flawed(svc)
	case showEmpty:
		return svc.empty
	}
	return true
}

// flawed reports whether something is wrong with a Service, even if it works: with its objects
// or some of its frontends, or it refuses clients.
func (s *snapshot) flawed(svc *service) bool {
	_, refuses := s.refusing()[svc.Name]
	return svc.problem || refuses || s.failing(svc)
}

// sortByState sorts the broken ones first, the worst of all, then those with a flaw, and
// each by their traffic of 15 minutes, so that they do not change places all the time. The same
// ones stay in the order of their names, and so do all that have had no traffic.
func (s *snapshot) sortByState(services []*service) {
	type standing struct {
		*service
		class int
		word  verdict.Word // of a broken one
		busy  float64
	}
	busy := make([]float64, len(s.services))
	for name, rate := range s.means() {
		if svc := s.find(name); svc != nil {
			busy[svc.index] = rate
		}
	}
	var first []standing
	var others []*service
	for _, svc := range services {
		is := standing{service: svc, class: 2, busy: busy[svc.index]}
		if v := s.verdict(svc); v.Faulty() {
			is.class, is.word = 0, v.Word
		} else if s.flawed(svc) {
			is.class = 1
		}
		if is.class == 2 && is.busy == 0 {
			others = append(others, svc)
		} else {
			first = append(first, is)
		}
	}
	slices.SortStableFunc(first, func(a, b standing) int {
		return cmp.Or(a.class-b.class, a.word.Compare(b.word), cmp.Compare(b.busy, a.busy))
	})
	for i := range first {
		services[i] = first[i].service
	}
	copy(services[len(first):], others)
}

// sort sorts those with the highest value first, and the same ones by name.
func (s *snapshot) sort(services []*service, value func(*snapshot, *service) float64) {
	type rated struct {
		*service
		value float64
	}
	all := make([]rated, len(services))
	for i, svc := range services {
		all[i] = rated{svc, value(s, svc)}
	}
	slices.SortStableFunc(all, func(a, b rated) int { return cmp.Compare(b.value, a.value) })
	for i := range all {
		services[i] = all[i].service
	}
}

// search is a list of words that must all match.
type search struct {
	words  []word
	buffer []byte
}

// word is one of them in lower case, and as a port or an address if it is one.
type word struct {
	text string
	port uint16
	addr netip.Addr
}

func newSearch(text string) *search {
	s := &search{}
	for field := range strings.FieldsSeq(strings.ToLower(text)) {
		w := word{text: field}
		if port, err := strconv.ParseUint(field, 10, 16); err == nil {
			w.port = uint16(port)
		}
		if addr, err := netip.ParseAddr(strings.Trim(field, "[]")); err == nil {
			w.addr = addr.Unmap()
		}
		s.words = append(s.words, w)
	}
	return s
}

func (s *search) matches(svc *service) bool {
	for i := range s.words {
		if !s.found(&s.words[i], svc) {
			return false
		}
	}
	return true
}

// found searches the name of a Service and its frontends. A number is a port, and an
// address may also be that of an endpoint.
func (s *search) found(w *word, svc *service) bool {
	s.buffer = append(append(append(s.buffer[:0], svc.Name.Namespace...), '/'), svc.Name.Name...)
	if bytes.Contains(bytes.ToLower(s.buffer), []byte(w.text)) {
		return true
	}
	return slices.ContainsFunc(svc.frontends, func(f *plan.Frontend) bool { return s.inFrontend(w, f) })
}

func (s *search) inFrontend(w *word, f *plan.Frontend) bool {
	switch {
	case w.port != 0:
		return f.Key.Port == w.port || f.IsRange() && f.Ports().Contains(w.port)
	case strings.Contains(strings.ToLower(f.Port), w.text):
		return true
	case w.addr.IsValid() && (f.Addr == w.addr || hasEndpoint(f, w.addr)):
		return true
	}
	s.buffer = appendAddress(s.buffer[:0], f.Key)
	return bytes.Contains(bytes.ToLower(s.buffer), []byte(w.text))
}

func hasEndpoint(f *plan.Frontend, addr netip.Addr) bool {
	return slices.ContainsFunc(f.Routes(), func(r *plan.Route) bool {
		return slices.ContainsFunc(r.Endpoints, func(e plan.Endpoint) bool { return e.Addr() == addr })
	})
}

// appendAddress appends the address of a frontend. Node ports have many.
func appendAddress(b []byte, k plan.Key) []byte {
	if k.NodePort() {
		b = append(b, ':')
		b = strconv.AppendUint(b, uint64(k.Port), 10)
	} else {
		b = netip.AddrPortFrom(k.Addr, k.Port).AppendTo(b)
	}
	if k.IsRange() {
		b = append(b, '-')
		b = strconv.AppendUint(b, uint64(k.Last), 10)
	}
	return append(append(b, '/'), k.Protocol.String()...)
}
