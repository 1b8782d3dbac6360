package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/base/notify"
	"sluice/internal/base/printable"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

const (
	// maxEvents is how many Events are recorded at a time, and eventsPause how long
	// the next ones wait: a thousand bad objects must not overload the API server.
	maxEvents   = 25
	eventsPause = 10 * time.Second
	// noteAge is how long a note about an object stands before a different one
	// replaces it.
	noteAge = time.Minute
	// maxReasons is how many problems of one object a note names.
	maxReasons = 3
)

// ProblemsOptions configures Problems.
type ProblemsOptions struct {
	Recorder Recorder
	Engine   Engine
	// Verdicts returns whether clients of each Service get an answer; nil if nobody knows.
	Verdicts func() map[model.Name]verdict.Service
	Clock    clock.Clock // nil for the real one
}

// Problems records Events on objects of which something is not in the kernel: each
// once, until it is solved and occurs again. Of problems that every node of a cluster
// has, only the nodes that are concerned record Events.
type Problems struct {
	ProblemsOptions
	changed notify.Signal
	refused atomic.Bool // there were refused frontends at the last look

	recorded map[subject]note // belongs to the goroutine of Run
}

// subject is what there is at most one note about.
type subject struct {
	about  model.Object
	reason string
}

type note struct {
	text string
	at   time.Time
}

// NewProblems returns Problems that record nothing until Run.
func NewProblems(o ProblemsOptions) *Problems {
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	return &Problems{ProblemsOptions: o, changed: notify.NewSignal(), recorded: map[subject]note{}}
}

// Committed makes Run look for new problems.
func (p *Problems) Committed(c *engine.Commit) {
	if c.Change.Problems || len(c.Result.Failed) > 0 || p.refused.Load() {
		p.changed.Notify()
	}
}

// Look makes Run look for Services whose endpoints do not answer.
func (p *Problems) Look() { p.changed.Notify() }

// Run follows the engine until ctx ends, and then returns nil.
func (p *Problems) Run(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		case <-again:
		}
		again = nil
		if more := p.record(); more {
			again = p.Clock.After(eventsPause)
		}
	}
}

// record records what is new, and reports whether there is more than it may record
// now.
func (p *Problems) record() (more bool) {
	notes, now, events := p.notes(), p.Clock.Now(), 0
	maps.DeleteFunc(p.recorded, func(s subject, _ note) bool { _, still := notes[s]; return !still })
	for _, s := range slices.SortedFunc(maps.Keys(notes), subject.compare) {
		text := notes[s]
		old, known := p.recorded[s]
		switch {
		case known && old.text == text:
		case known && now.Sub(old.at) < noteAge, events == maxEvents:
			more = true
		default:
			events++
			p.recorded[s] = note{text, now}
			p.Recorder.Record(warning(s.about, s.reason, actions[s.reason], text))
		}
	}
	return more
}

var actions = map[string]string{ReasonServiceNotProgrammed: actionProgram, ReasonPartlyIgnored: actionRead, ReasonEndpointsNotAnswering: actionProgram}

func (p *Problems) notes() map[subject]string {
	failures := p.Engine.Failures()
	p.refused.Store(len(failures) > 0)
	refusals := map[subject][]string{}
	notes := map[subject]string{}
	p.Engine.Inspect(func(v engine.View) {
		d := v.Desired
		for about, problems := range d.Problems {
			if concerned(d, about) {
				notes[subject{about, ReasonPartlyIgnored}] = printable.ListFirst(problems, maxReasons, "; ", problemText)
			}
		}
		for _, failure := range failures {
			if f := d.Frontends[failure.Key]; f != nil && concerned(d, model.ServiceObject(f.Service)) {
				s := subject{model.ServiceObject(f.Service), ReasonServiceNotProgrammed}
				refusals[s] = append(refusals[s], fmt.Sprintf("%s: %v", f.Text(), failure.Err))
			}
		}
	})
	p.addVerdicts(notes)
	for s, texts := range refusals {
		notes[s] = printable.ListFirst(texts, maxReasons, "; ", func(text string) string { return text })
	}
	return notes
}

// addVerdicts adds notes on Services whose endpoints do not answer clients.
func (p *Problems) addVerdicts(notes map[subject]string) {
	if p.Verdicts == nil {
		return
	}
	silent := p.Verdicts()
	maps.DeleteFunc(silent, func(_ model.Name, v verdict.Service) bool {
		return v.Cause != verdict.EndpointSilent && v.Cause != verdict.EndpointResets
	})
	p.Engine.Inspect(func(v engine.View) {
		for name, s := range silent {
			if about := model.ServiceObject(name); concerned(v.Desired, about) {
				notes[subject{about, ReasonEndpointsNotAnswering}] = answerText(s)
			}
		}
	})
}

// answerText says what clients meet, without numbers that grow all the time.
func answerText(s verdict.Service) string {
	what := "endpoints do not answer"
	if s.Cause == verdict.EndpointResets {
		what = "endpoints refuse connections"
	}
	return fmt.Sprintf("%s: %s since %s, as clients on or through this node found (kube-proxy explain says which)",
		s.Word.Text(), what, s.Since.UTC().Format("15:04:05 UTC"))
}

// concerned reports whether this node records Events on an object: its own Node,
// and Services that it runs an endpoint of.
func concerned(d *plan.Desired, about model.Object) bool {
	_, local := d.EventsOn[about]
	return local || about.Kind == "Node"
}

// problemText omits the object, which the Event is about.
func problemText(p model.Problem) string {
	if p.Remedy == "" {
		return p.What()
	}
	return p.What() + " (" + p.Remedy + ")"
}

func (s subject) compare(o subject) int {
	return cmp.Or(cmp.Compare(s.about.Kind, o.about.Kind), cmp.Compare(s.about.Namespace, o.about.Namespace),
		cmp.Compare(s.about.Name, o.about.Name), cmp.Compare(s.reason, o.reason))
}
