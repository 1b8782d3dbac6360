package web

import (
	"slices"
	"sync"
	"time"

	"sluice/internal/answer/status"
	"sluice/internal/engine"
	"sluice/internal/observe/verdict"
)

// All Services are judged again after judgeFactor times as long as that takes, because an open
// page must cost next to nothing.
const judgeFactor = 200

// verdicts remembers those on all Services.
type verdicts struct {
	mu   sync.Mutex
	of   *cluster          // that they are about, nil before the first ones
	all  []verdict.Service // in the order of its Services
	next time.Time         // when all are judged again
}

// forget frees the memory.
func (v *verdicts) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of, v.all = nil, nil
}

// last returns the last verdict on a Service if it holds: the Service worked, and has the same
// frontends. What is broken or not in the kernel yet is judged each time.
func (v *verdicts) last(c *cluster, svc *service) (verdict.Service, bool) {
	if v.of == c {
		return v.all[svc.index], v.all[svc.index].Word == verdict.Works
	}
	before := v.of.find(svc.Name)
	if before == nil || len(before.frontends) != len(svc.frontends) || v.all[before.index].Word != verdict.Works {
		return verdict.Service{}, false
	}
	for _, f := range svc.frontends {
		if !slices.Contains(before.frontends, f) {
			return verdict.Service{}, false
		}
	}
	return v.all[before.index], true
}

// verdictsOn returns those on all Services of a cluster, in its order.
func (h *Handler) verdictsOn(c *cluster) []verdict.Service {
	v := &h.verdicts
	v.mu.Lock()
	defer v.mu.Unlock()
	start := h.Clock.Now()
	again := v.of == nil || !start.Before(v.next)
	all := make([]verdict.Service, len(c.services))
	var due []int
	for i := range c.services {
		if !again {
			if last, holds := v.last(c, &c.services[i]); holds {
				all[i] = last
				continue
			}
		}
		due = append(due, i)
	}
	for some := range slices.Chunk(due, verdict.Portion) {
		h.Engine.Inspect(func(view engine.View) {
			judge := h.Judge(view)
			for _, i := range some {
				all[i] = judge.Service(c.services[i].Name, c.services[i].frontends)
			}
		})
	}
	v.of, v.all = c, all
	if again {
		end := h.Clock.Now()
		v.next = end.Add(min(averaged, max(minInterval, judgeFactor*end.Sub(start))))
	}
	return all
}

func (s *snapshot) verdict(svc *service) *verdict.Service { return &s.verdicts()[svc.index] }

func conditionOf(v *verdict.Service) status.Condition {
	c := condition(levelOf(v.Word), v.Word.Text(), v.Why)
	if v.Word == verdict.Works {
		c.Text = "nothing is known against it"
	}
	return c
}

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
