package listing

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"sluice/internal/answer/services"
	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// List is a list of Services. The names of its fields in JSON are an interface and never
// change.
type List struct {
	Node string    `json:"node"`
	Now  time.Time `json:"now"`
	// Proxy is the verdict on the proxy that knows of these Services.
	Proxy verdict.Proxy `json:"proxy"`
	// Total counts the Services of the node, whether they are listed or not.
	Total    int       `json:"total"`
	Services []Service `json:"services"`
	// Rated says that rates were measured, over Seconds, and Unrated why they were not,
	// though the query asks for them.
	Rated   bool    `json:"rated"`
	Seconds float64 `json:"seconds,omitempty"`
	Unrated string  `json:"unrated,omitempty"`
}

// Service is a Service of the node.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	verdict.Service
	Frontends []string `json:"frontends,omitempty"`
	// Lost are frontends that its objects ask for and other Services have.
	Lost []Lost `json:"lostFrontends,omitempty"`
	// Endpoints counts the addresses that get new connections from or through this
	// node, and Local those of them on it: in the family that has more of them, since an
	// endpoint of a dual-stack Service has an address of each.
	Endpoints int `json:"endpoints"`
	Local     int `json:"localEndpoints"`
	// Problems are what is wrong, with remedies.
	Problems []string `json:"problems,omitempty"`
	// Connections and Refused are packets per second that opened a connection, and that
	// tried to in vain. They are 0 unless rates were measured.
	Connections float64 `json:"connectionsPerSecond"`
	Refused     float64 `json:"refusedPerSecond"`
}

// Lost is a frontend that a Service asks for and another one, To, has.
type Lost struct {
	Frontend string `json:"frontend"`
	To       string `json:"to"`
}

// Failing reports whether a Service does not work, or not as it should: in part, not yet, or
// without something that its objects ask for.
func (s *Service) Failing() bool {
	return s.Faulty() || s.Word == verdict.Unknown || len(s.Problems) > 0
}

// DefaultInterval is how long rates are measured.
const DefaultInterval = 2 * time.Second

// Query selects and sorts Services.
type Query struct {
	Namespace string `json:"namespace,omitempty"` // "" for all
	Failing   bool   `json:"failing,omitempty"`   // only those that fail
	// Top measures rates for a while, and sorts by them.
	Top      bool            `json:"top,omitempty"`
	Interval metav1.Duration `json:"interval,omitzero"` // 0 for DefaultInterval
	Limit    int             `json:"limit,omitempty"`   // 0 for all
}

// Options configures a Lister.
type Options struct {
	Engine *engine.Engine
	// Judge returns who judges Services of a view.
	Judge func(engine.View) *verdict.Judge
	// Proxy judges the proxy.
	Proxy func() verdict.Proxy
	// Traffic reads the counters of the kernel; nil in a mode that has none.
	Traffic dataplane.TrafficFunc
	Node    string
	Clock   clock.Clock
}

// Lister lists Services.
type Lister struct{ Options }

// New returns a Lister.
func New(o Options) *Lister { return &Lister{o} }

// List returns the Services that a query selects.
func (l *Lister) List(ctx context.Context, q Query) (*List, error) {
	out := &List{Node: l.Node, Proxy: l.Proxy(), Services: []Service{}}
	var rates map[plan.Key]services.Rates
	if q.Top && l.Traffic != nil {
		var err error
		if rates, out.Seconds, err = l.measure(ctx, cmp.Or(q.Interval.Duration, DefaultInterval)); err != nil {
			return nil, err
		}
		out.Rated = true
	} else if q.Top {
		out.Unrated = "the mode of this proxy does not count connections: no rates are shown, and the Services are in order of their names"
	}
	l.Engine.Inspect(func(v engine.View) {
		out.Total = len(v.State.Services())
		judge := l.Judge(v)
		for _, svc := range services.All(v, q.Namespace) {
			out.Services = append(out.Services, rowOf(svc, judge, rates))
		}
	})
	out.Now = l.Clock.Now()
	if q.Failing {
		out.Services = slices.DeleteFunc(out.Services, func(s Service) bool { return !s.Failing() })
	}
	slices.SortFunc(out.Services, func(a, b Service) int {
		byName := cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		if q.Top {
			return cmp.Or(cmp.Compare(b.Connections+b.Refused, a.Connections+a.Refused), byName)
		}
		return byName
	})
	if q.Limit > 0 && len(out.Services) > q.Limit {
		out.Services = out.Services[:q.Limit]
	}
	return out, nil
}

func rowOf(svc *services.Service, judge *verdict.Judge, rates map[plan.Key]services.Rates) Service {
	frontends := services.Sorted(svc.Frontends())
	s := Service{Namespace: svc.Name.Namespace, Name: svc.Name.Name, Service: judge.Service(svc.Name, frontends)}
	s.Endpoints, s.Local = plan.InUse(frontends)
	var sum services.Rates
	for _, f := range frontends {
		s.Frontends = append(s.Frontends, f.Key.String())
		sum.Add(rates[f.Key])
		if status, ok := judge.Phase(f.Key); ok && status.Phase == engine.Failed {
			s.Problems = append(s.Problems, f.Key.String()+": "+status.Err.Error())
		}
	}
	s.Connections, s.Refused = sum.Connections, sum.Refused.Total()
	for _, l := range svc.Lost() {
		s.Lost = append(s.Lost, Lost{l.Key.String(), l.To.String()})
	}
	for _, p := range svc.Problems {
		s.Problems = append(s.Problems, p.String())
	}
	return s
}

// measure returns the traffic of frontends, and over how many seconds it was measured.
func (l *Lister) measure(ctx context.Context, over time.Duration) (map[plan.Key]services.Rates, float64, error) {
	first := map[plan.Key]dataplane.Traffic{}
	if _, err := l.Traffic(ctx, func(k plan.Key, t dataplane.Traffic) { first[k] = t }); err != nil {
		return nil, 0, err
	}
	begin := l.Clock.Now()
	select {
	case <-l.Clock.After(over):
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	rates, took := map[plan.Key]services.Rates{}, max(l.Clock.Since(begin), time.Millisecond)
	_, err := l.Traffic(ctx, func(k plan.Key, now dataplane.Traffic) {
		if before, known := first[k]; known {
			if r, ok := services.RatesBetween(before, now, took); ok {
				rates[k] = r
			}
		}
	})
	return rates, took.Seconds(), err
}

// maxFrontends is how many frontends a row names.
const maxFrontends = 2

// Write writes a list as a table.
func Write(w io.Writer, l *List) error {
	var t printable.Table
	head := []string{"NAMESPACE", "NAME", "VERDICT", "ENDPOINTS", "LOCAL"}
	if l.Rated {
		head = append(head, "CONN/S", "REFUSED/S")
	}
	t.Row(append(head, "FRONTENDS", "WHY")...)
	for i := range l.Services {
		s := &l.Services[i]
		cells := []string{s.Namespace, s.Name, s.verdict(), fmt.Sprint(s.Endpoints), fmt.Sprint(s.Local)}
		if l.Rated {
			cells = append(cells, perSecond(s.Connections), perSecond(s.Refused))
		}
		t.Row(append(cells, frontends(s.Frontends), s.Why)...)
		for _, p := range s.Problems {
			t.Note("  ! " + p)
		}
	}
	if p := l.Proxy; p.Word != verdict.Serving {
		t.Note("the proxy is " + strings.ToUpper(p.Word.Text()) + ": " + p.Why)
	}
	if l.Unrated != "" {
		t.Note("Note: " + l.Unrated)
	}
	if len(l.Services) < l.Total {
		t.Note(fmt.Sprintf("%d of %s", len(l.Services), printable.Count(l.Total, "Service")))
	}
	return t.Write(w)
}

// verdict is in capitals if no client gets an answer.
func (s *Service) verdict() string {
	if s.Word.Failing() {
		return strings.ToUpper(s.Word.Text())
	}
	return s.Word.Text()
}

func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 10:
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

func frontends(keys []string) string {
	var shown []string
	for _, k := range keys[:min(len(keys), maxFrontends)] {
		for _, any := range []string{"0.0.0.0:", "[::]:"} { // node ports answer on many addresses
			if port, ok := strings.CutPrefix(k, any); ok {
				k = "node port " + port
			}
		}
		shown = append(shown, k)
	}
	if more := len(keys) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("+%d", more))
	}
	if len(shown) == 0 {
		return "none"
	}
	return strings.Join(shown, ", ")
}
