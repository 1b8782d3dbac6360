package web

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/internal/answer/services"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const (
	// Traffic is recorded for 15 minutes in steps of 10 seconds.
	step  = 10 * time.Second
	steps = 90
	// maxRecorded is how many Services are recorded: those with the most traffic.
	maxRecorded = 500
)

// recorder remembers the traffic of Services.
type recorder struct {
	mu     sync.Mutex
	first  int64 // number of the first step of all, 0 before it
	last   int64 // number of the last one
	total  series
	series map[model.Name]*series
}

// series is the traffic of a Service per second in each step, at the number of the step
// modulo steps.
type series struct {
	first                int64 // number of the first step
	connections, refused [steps]float32
}

// mean is the traffic per second until a step.
func (s *series) mean(last int64) float64 {
	var sum float32
	for i := range steps {
		sum += s.connections[i] + s.refused[i]
	}
	return float64(sum) / float64(max(1, min(steps, last-s.first+1)))
}

func (s *series) set(from, to int64, is services.Rates) {
	for i := from; i <= to; i++ {
		s.connections[i%steps], s.refused[i%steps] = float32(is.Connections), float32(is.Refused.Total())
	}
}

func numberOf(t time.Time) int64 { return t.Unix() / int64(step/time.Second) }

// record sets the traffic of the step of a time, and of those since the last one.
// Services that are not mentioned have none.
func (r *recorder) record(now time.Time, traffic map[model.Name]services.Rates) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := numberOf(now)
	if r.series == nil || n < r.last || n-r.last >= steps { // the first, or too late to continue
		r.series, r.total, r.first, r.last = map[model.Name]*series{}, series{first: n}, n, n-1
	}
	r.admit(traffic)
	from := min(r.last+1, n) // a second one in the same step replaces the first
	r.last = n
	var total services.Rates
	for _, is := range traffic {
		total.Add(is)
	}
	r.total.set(from, n, total)
	for name, s := range r.series {
		s.set(from, n, traffic[name])
		if s.mean(n) == 0 {
			delete(r.series, name)
		}
	}
}

// admit adds the Services that have traffic. Of too many, those with the most are recorded; of two
// with the same, the one that is recorded already.
func (r *recorder) admit(traffic map[model.Name]services.Rates) {
	rates := make(map[model.Name]float64, len(r.series)+len(traffic))
	for name, is := range traffic {
		rates[name] = is.Connections + is.Refused.Total()
	}
	for name, s := range r.series {
		rates[name] = s.mean(r.last)
	}
	var weak []model.Name
	if len(rates) > maxRecorded {
		weak = slices.SortedFunc(maps.Keys(rates), func(a, b model.Name) int {
			return cmp.Or(cmp.Compare(rates[b], rates[a]), first(r.series[a] != nil, r.series[b] != nil), a.Compare(b))
		})[maxRecorded:]
	}
	for _, name := range weak {
		delete(rates, name)
		delete(r.series, name)
	}
	for name := range rates {
		if r.series[name] == nil {
			r.series[name] = &series{first: r.last + 1}
		}
	}
}

// recording is the traffic of a Service or of all, the oldest first.
type recording struct {
	end                  time.Time // of the last step
	connections, refused []float32 // at most one for each step
}

// of returns the recording of a Service, false if there is none.
func (r *recorder) of(name model.Name) (recording, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.series[name]
	if s == nil {
		return recording{}, false
	}
	return r.read(s), true
}

// all returns the recording of all Services together, false before the first step.
func (r *recorder) all() (recording, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.series == nil {
		return recording{}, false
	}
	return r.read(&r.total), true
}

// means returns the traffic per second of each Service that is recorded.
func (r *recorder) means() map[model.Name]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[model.Name]float64, len(r.series))
	for name, s := range r.series {
		out[name] = s.mean(r.last)
	}
	return out
}

// read returns the recording of a series. r.mu is held.
func (r *recorder) read(s *series) recording {
	out := recording{end: time.Unix((r.last+1)*int64(step/time.Second), 0)}
	for i := max(r.first, r.last-steps+1); i <= r.last; i++ {
		out.connections = append(out.connections, s.connections[i%steps])
		out.refused = append(out.refused, s.refused[i%steps])
	}
	return out
}

// Run records traffic until ctx ends, and then returns nil.
func (h *Handler) Run(ctx context.Context) error {
	for h.Traffic != nil {
		timer := h.Clock.NewTimer(max(step, h.meter.due().Sub(h.Clock.Now())))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
			h.record(ctx)
		}
	}
	<-ctx.Done()
	return nil
}

func (h *Handler) record(ctx context.Context) {
	if r := h.meter.read(ctx); r.known() {
		h.recorder.record(h.Clock.Now(), byService(h.Engine.Inspect, r.rates))
	}
}

func byService(inspect func(func(engine.View)), all map[plan.Key]services.Rates) map[model.Name]services.Rates {
	out := map[model.Name]services.Rates{}
	inspect(func(v engine.View) {
		for key, rates := range all {
			if f := v.Desired.Frontends[key]; f != nil {
				sum := out[f.Service]
				sum.Add(rates)
				out[f.Service] = sum
			}
		}
	})
	return out
}
