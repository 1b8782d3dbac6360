package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/notify"
	"sluice/internal/plan"
)

const (
	// mostEvents is how many Events are recorded at a time, and eventsPause
	// how long the next ones wait: a thousand bad objects must not keep the API
	// server from its work.
	mostEvents  = 25
	eventsPause = 10 * time.Second
	// noteAge is how long a note stands before another takes its place, should
	// trouble with an object have another face each time.
	noteAge = time.Minute
	// mostReasons is how many things wrong with one object are spelled out.
	mostReasons = 3
)

// ProblemsOptions configures Problems.
type ProblemsOptions struct {
	Recorder Recorder
	Engine   Engine
	Clock    clock.Clock // nil for the real one
}

// Problems tells the owners of objects what of them is not in the kernel: each
// once, until it is mended and comes up again. Of what every node of a cluster
// finds wrong, only those tell that are concerned.
type Problems struct {
	ProblemsOptions
	changed notify.Signal
	refused atomic.Bool // frontends were refused when it last looked

	told map[subject]note // belongs to the goroutine of Run
}

// subject is what there is at most one note about.
type subject struct {
	about  Object
	reason string
}

type note struct {
	text string
	at   time.Time
}

// NewProblems returns Problems that tell nothing until Run.
func NewProblems(o ProblemsOptions) *Problems {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Problems{ProblemsOptions: o, changed: notify.NewSignal(), told: map[subject]note{}}
}

// Committed has Run look whether there is something new to tell.
func (p *Problems) Committed(c *engine.Commit) {
	if c.Change.Problems || len(c.Result.Failed) > 0 || p.refused.Load() {
		p.changed.Notify()
	}
}

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
		if more := p.tell(); more {
			again = p.Clock.After(eventsPause)
		}
	}
}

// tell records what is new, and says whether there is more than it may record
// now.
func (p *Problems) tell() (more bool) {
	notes, now, recorded := p.look(), p.Clock.Now(), 0
	maps.DeleteFunc(p.told, func(s subject, _ note) bool { _, still := notes[s]; return !still })
	for _, s := range slices.SortedFunc(maps.Keys(notes), subject.compare) {
		text := notes[s]
		old, known := p.told[s]
		switch {
		case known && old.text == text:
		case known && now.Sub(old.at) < noteAge, recorded == mostEvents:
			more = true
		default:
			recorded++
			p.told[s] = note{text, now}
			p.Recorder.Record(warning(s.about, s.reason, actions[s.reason], text))
		}
	}
	return more
}

var actions = map[string]string{ReasonServiceNotProgrammed: actionProgram, ReasonPartlyIgnored: actionRead}

// look finds out what there is to tell now.
func (p *Problems) look() map[subject]string {
	failures := p.Engine.Failures()
	p.refused.Store(len(failures) > 0)
	refusals := map[subject][]string{}
	notes := map[subject]string{}
	p.Engine.Inspect(func(v engine.View) {
		d := v.Desired
		for object, problems := range d.Problems {
			if about := objectOf(object); concerned(d, about) {
				notes[subject{about, ReasonPartlyIgnored}] = list(problems, problemText)
			}
		}
		for _, failure := range failures {
			if f := d.Frontends[failure.Key]; f != nil && concerned(d, serviceObject(f.Service)) {
				s := subject{serviceObject(f.Service), ReasonServiceNotProgrammed}
				refusals[s] = append(refusals[s], fmt.Sprintf("%s %s: %v", f.Kind, f.Key, failure.Err))
			}
		}
	})
	for s, texts := range refusals {
		notes[s] = list(texts, func(text string) string { return text })
	}
	return notes
}

// concerned tells whether it is for this node to tell of an object: its own Node,
// and what it runs an endpoint of.
func concerned(d *plan.Desired, about Object) bool {
	_, local := d.EventsOn[about.String()]
	return local || about.Kind == "Node"
}

// problemText leaves out the object, for the Event is on it.
func problemText(problem model.Problem) string {
	problem.Object = ""
	return strings.TrimPrefix(problem.String(), ": ")
}

// list spells out the first few.
func list[T any](all []T, text func(T) string) string {
	var words []string
	for _, one := range all[:min(len(all), mostReasons)] {
		words = append(words, text(one))
	}
	out := strings.Join(words, "; ")
	if more := len(all) - mostReasons; more > 0 {
		out += fmt.Sprintf("; and %d more", more)
	}
	return out
}

func (s subject) compare(o subject) int {
	return cmp.Or(cmp.Compare(s.about.Kind, o.about.Kind), cmp.Compare(s.about.Namespace, o.about.Namespace),
		cmp.Compare(s.about.Name, o.about.Name), cmp.Compare(s.reason, o.reason))
}
