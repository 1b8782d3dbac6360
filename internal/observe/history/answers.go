package history

import (
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/base/printable"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/plan"
)

// at is an endpoint.
type at struct {
	netip.AddrPort
	protocol model.Protocol
}

// Answers records which endpoints began, or ceased, not to answer clients since the last time.
// What nobody tried any more, or is no endpoint any more, ceases without an Event. It reports
// whether there are others now.
func (h *History) Answers(reports map[evidence.To]evidence.Report) (others bool) {
	now := failing(reports)
	h.read(func() {
		changed := map[at]Event{}
		for to, worst := range now {
			if h.failing[to] != worst.kind {
				changed[to] = Event{Kind: worst.kind, Detail: printable.Count(int(worst.Failed), "failed attempt")}
			}
		}
		for to := range h.failing {
			if _, still := now[to]; !still && answers(reports, to) {
				changed[to] = Event{Kind: EndpointAnswers}
			}
		}
		others = len(changed) > 0 || len(now) != len(h.failing)
		clear(h.failing)
		for to, worst := range now {
			h.failing[to] = worst.kind
		}
		if len(changed) > 0 {
			h.recordAnswers(changed)
		}
	})
	return others
}

// failure is what the clients met that fail most often at an endpoint.
type failure struct {
	evidence.Report
	kind Kind
}

func failing(reports map[evidence.To]evidence.Report) map[at]failure {
	out := map[at]failure{}
	for to, r := range reports {
		key := at{to.AddrPort, to.Protocol}
		if !r.State.Failing() || r.Failed < out[key].Failed {
			continue
		}
		kind := EndpointSilent
		if r.State == evidence.Resets {
			kind = EndpointResets
		}
		out[key] = failure{r, kind}
	}
	return out
}

// answers reports whether clients of some kind got an answer.
func answers(reports map[evidence.To]evidence.Report, to at) bool {
	for key, r := range reports {
		if key.AddrPort == to.AddrPort && key.Protocol == to.protocol && !r.LastAnswer.IsZero() {
			return true
		}
	}
	return false
}

// recordAnswers adds an Event for each Service that has an endpoint.
func (h *History) recordAnswers(changed map[at]Event) {
	var frontends []*plan.Frontend
	h.Inspect(func(v engine.View) { frontends = slices.Collect(maps.Values(v.Desired.Frontends)) })
	type of struct {
		service model.Name
		at
	}
	events := map[of]Event{}
	for _, f := range frontends {
		for _, r := range f.Routes() {
			for _, e := range r.Endpoints {
				key := at{e.AddrPort, f.Protocol}
				if event, news := changed[key]; news {
					event.At, event.Service, event.Endpoint = h.Clock.Now(), f.Service.String(), e.AddrPort.String()
					events[of{f.Service, key}] = event
				}
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(events), func(a, b Event) int {
		return slices.Compare([]string{a.Service, a.Endpoint}, []string{b.Service, b.Endpoint})
	})
	for _, e := range sorted[:min(len(sorted), maxPerCommit)] {
		h.add(&h.changes, e)
	}
}
