package listing

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
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
	var rates map[plan.Key]rate
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
		for _, r := range read(v, q.Namespace) {
			out.Services = append(out.Services, r.service(judge, rates))
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

// row is a Service, its frontends and why parts of it are not used.
type row struct {
	name      model.Name
	frontends []*plan.Frontend
	problems  []model.Problem
}

// read returns the Services of a view.
func read(v engine.View, namespace string) []*row {
	rows := make(map[model.Name]*row, len(v.State.Services()))
	for name := range v.State.Services() {
		if namespace == "" || name.Namespace == namespace {
			rows[name] = &row{name: name}
		}
	}
	for _, p := range v.Desired.Refused {
		name, ok := p.Object.Service()
		if !ok || namespace != "" && name.Namespace != namespace {
			continue
		}
		if rows[name] == nil {
			rows[name] = &row{name: name}
		}
		rows[name].problems = append(rows[name].problems, p)
	}
	for _, f := range v.Desired.Frontends {
		if r := rows[f.Service]; r != nil {
			r.frontends = append(r.frontends, f)
		}
	}
	if len(v.Desired.Problems) > 0 {
		for name, r := range rows {
			r.problems = append(r.problems, v.Desired.Problems[model.ServiceObject(name)]...)
			for _, slice := range v.State.Slices(name) {
				r.problems = append(r.problems, v.Desired.Problems[model.SliceObject(slice.Name)]...)
			}
		}
	}
	return slices.Collect(maps.Values(rows))
}

func (r *row) service(judge *verdict.Judge, rates map[plan.Key]rate) Service {
	s := Service{Namespace: r.name.Namespace, Name: r.name.Name}
	slices.SortFunc(r.frontends, func(a, b *plan.Frontend) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Family(), b.Family()), a.Key.Compare(b.Key))
	})
	s.Service = judge.Service(r.name, r.frontends)
	seen, endpoints, local := map[netip.Addr]struct{}{}, map[model.Family]int{}, map[model.Family]int{}
	for _, f := range r.frontends {
		s.Frontends = append(s.Frontends, f.Key.String())
		rate := rates[f.Key]
		s.Connections += rate.connections
		s.Refused += rate.refused
		if status, ok := judge.Phase(f.Key); ok && status.Phase == engine.Failed {
			s.Problems = append(s.Problems, f.Key.String()+": "+status.Err.Error())
		}
		for _, route := range f.Routes() {
			for _, e := range route.Endpoints {
				if _, counted := seen[e.Addr()]; !counted {
					seen[e.Addr()] = struct{}{}
					endpoints[f.Family()]++
					if e.Local {
						local[f.Family()]++
					}
				}
			}
		}
	}
	for _, family := range model.Families {
		s.Endpoints, s.Local = max(s.Endpoints, endpoints[family]), max(s.Local, local[family])
	}
	for _, p := range r.problems {
		s.Problems = append(s.Problems, p.String())
	}
	return s
}

// rate is traffic per second.
type rate struct{ connections, refused float64 }

// measure returns the traffic of frontends, and over how many seconds it was measured.
func (l *Lister) measure(ctx context.Context, over time.Duration) (map[plan.Key]rate, float64, error) {
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
	rates, took := map[plan.Key]rate{}, max(l.Clock.Since(begin).Seconds(), 1e-3)
	_, err := l.Traffic(ctx, func(k plan.Key, now dataplane.Traffic) {
		before, known := first[k]
		if !known || now.Attempts < before.Attempts {
			return // it is new, or was reset
		}
		delta := now.Minus(before)
		r := rate{connections: float64(max(0, delta.Connections)) / took}
		for _, n := range delta.Refused {
			r.refused += float64(max(0, n)) / took
		}
		if r != (rate{}) {
			rates[k] = r
		}
	})
	return rates, took, err
}
