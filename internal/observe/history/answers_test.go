package history

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/plan"
)

func TestEndpointsThatDoNotAnswer(t *testing.T) {
	desired := plan.Desired{Frontends: map[plan.Key]*plan.Frontend{}}
	for _, f := range []*plan.Frontend{
		frontend("a", "10.0.0.1", "10.244.0.1:80", "10.244.0.2:80"), frontend("b", "10.0.0.2", "10.244.0.1:80"), frontend("c", "10.0.0.3", "10.244.0.3:80"),
	} {
		desired.Frontends[f.Key] = f
	}
	h := New(Options{Inspect: func(read func(engine.View)) { read(engine.View{Desired: &desired}) }})
	to := func(addr string, from plan.Client) evidence.To {
		return evidence.To{AddrPort: netip.MustParseAddrPort(addr), Protocol: model.TCP, From: from}
	}
	one, other := to("10.244.0.1:80", plan.PodClient), to("10.244.0.3:80", plan.NodeClient)
	silent := evidence.Report{State: evidence.Silent, Failed: 3, Since: now}
	more := silent
	more.Failed = 9
	last := uint64(0)
	for _, step := range []struct {
		name string
		now  map[evidence.To]evidence.Report
		want string // what happened, by Service
	}{
		{"nothing", nil, ""},
		{"one does not answer", map[evidence.To]evidence.Report{one: silent},
			"default/a endpoint 10.244.0.1:80 does not answer: 3 failed attempts, default/b endpoint 10.244.0.1:80 does not answer: 3 failed attempts"},
		{"still", map[evidence.To]evidence.Report{one: more}, ""},
		{"another one refuses", map[evidence.To]evidence.Report{one: more, other: {State: evidence.Resets, Failed: 1, Since: now}},
			"default/c endpoint 10.244.0.3:80 refuses connections: 1 failed attempt"},
		{"the first answers, nobody tries the other", map[evidence.To]evidence.Report{one: {LastAnswer: now.Add(time.Second)}},
			"default/a endpoint 10.244.0.1:80 answers again, default/b endpoint 10.244.0.1:80 answers again"},
		{"it fails again", map[evidence.To]evidence.Report{one: silent},
			"default/a endpoint 10.244.0.1:80 does not answer: 3 failed attempts, default/b endpoint 10.244.0.1:80 does not answer: 3 failed attempts"},
	} {
		if others := h.Answers(step.now); others != (step.want != "") {
			t.Errorf("%s: there are other ones: %v", step.name, others)
		}
		var got []string
		events, end := h.Events(Query{After: last})
		for _, e := range events {
			if e.Kind != Started {
				got = append(got, e.Service+" "+e.Text())
			}
		}
		last = end
		if text := strings.Join(got, ", "); text != step.want {
			t.Errorf("%s: %q, want %q", step.name, text, step.want)
		}
	}
}
