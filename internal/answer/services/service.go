package services

import (
	"cmp"
	"slices"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Service is what is known and planned for a Service at one moment. It may be kept.
type Service struct {
	Name model.Name
	// Evidence has the object, nil if there is none or a source refused it, and the frontends.
	plan.Evidence
	// Problems are those of the object, of a newer version of it that was refused, and of its
	// slices.
	Problems []model.Problem
}

// Read returns a Service of a view.
func Read(v engine.View, name model.Name) *Service { return read(v, name, refused(v)[name]) }

// All returns the Services of a view in a namespace, "" for all, also those that were refused. They
// are in no order.
func All(v engine.View, namespace string) (out []*Service) {
	wanted := func(n model.Name) bool { return namespace == "" || n.Namespace == namespace }
	problems := refused(v)
	for name := range v.State.Services() {
		if wanted(name) {
			out = append(out, read(v, name, problems[name]))
		}
	}
	for name := range problems {
		if wanted(name) && v.State.Service(name) == nil {
			out = append(out, read(v, name, problems[name]))
		}
	}
	return out
}

// refused returns why Services, or newer versions of them, were refused.
func refused(v engine.View) map[model.Name][]model.Problem {
	out := map[model.Name][]model.Problem{}
	for _, p := range v.Desired.Invalid {
		if name, ok := p.Object.Service(); ok {
			out[name] = append(out[name], p)
		}
	}
	return out
}

func read(v engine.View, name model.Name, refused []model.Problem) *Service {
	s := &Service{Name: name, Evidence: v.Evidence(name)}
	s.Problems = slices.Concat(refused, v.Desired.Problems[model.ServiceObject(name)])
	for _, slice := range s.Slices {
		s.Problems = append(s.Problems, v.Desired.Problems[model.SliceObject(slice.Name)]...)
	}
	return s
}

// Sorted returns frontends in the order in which people look for them, ClusterIPs first.
func Sorted(frontends []*plan.Frontend) []*plan.Frontend {
	return slices.SortedFunc(slices.Values(frontends), func(a, b *plan.Frontend) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Family(), b.Family()), a.Key.Compare(b.Key))
	})
}

// Rates are what frontends got per second: packets that opened a connection, and that tried to in
// vain.
type Rates struct {
	Connections float64
	Refused     Refusals
}

// Refusals are packets that tried to open a connection and were refused, per second and by cause.
type Refusals [plan.NumFrontendRefusals]float64

// RatesBetween returns the rates between two readings of the counters of a frontend, and false if
// they were reset meanwhile.
func RatesBetween(before, now dataplane.Traffic, took time.Duration) (r Rates, ok bool) {
	gained, ok := now.Since(before)
	seconds := took.Seconds()
	r.Connections = float64(gained.Connections) / seconds
	for i, n := range gained.Refused {
		r.Refused[i] = float64(n) / seconds
	}
	return r, ok
}

// Add adds the rates of another frontend.
func (r *Rates) Add(o Rates) {
	r.Connections += o.Connections
	for i := range o.Refused {
		r.Refused[i] += o.Refused[i]
	}
}

// Total is that of all causes.
func (r Refusals) Total() (sum float64) {
	for _, n := range r {
		sum += n
	}
	return sum
}

// Cause is the most frequent one.
func (r Refusals) Cause() plan.Cause {
	most := plan.NoEndpoints
	for i := range r {
		if r[i] > r[most] {
			most = plan.Cause(i)
		}
	}
	return most
}
