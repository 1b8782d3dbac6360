package ejection

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/backoff"
	"sluice/internal/base/socketerror"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const (
	// period is how often the witness is asked.
	period = 250 * time.Millisecond
	// maxProbes is how many endpoints the node asks at a time.
	maxProbes = 256
	// mendPeriod is how often the witness looks whether another program has changed what it needs.
	mendPeriod = 10 * time.Second
)

// Options configures an Ejector.
type Options struct {
	Logger  logr.Logger
	Clock   clock.WithTicker // nil for the real one
	Witness dataplane.Witness
	Sink    model.Sink
	// Ejected is called when an endpoint of a Service is left out for the first time since it answered,
	// and Count with how many are. Both may be nil; they must not block.
	Ejected func(model.Name, *model.Ejection)
	Count   func(endpoints int)
	// Dial connects to an endpoint until the context ends; nil to do so from the network of this process.
	Dial func(context.Context, dataplane.Target) Outcome
}

// Ejector finds endpoints that do not answer.
type Ejector struct {
	Options
	judge *judge

	mu        sync.Mutex
	frontends map[plan.Key]*plan.Frontend // that are watched
	changed   bool                        // since follow was called
	failure   error                       // why it is not seen who answers

	// All below belongs to the goroutine of Run.

	// services are those that an endpoint belongs to.
	services map[dataplane.Target][]model.Name
	// unwatched says that the witness does not know of these yet, onTrial are those of them that it knows to
	// be on trial, and mended is when it was last asked to mend what it needs.
	unwatched bool
	onTrial   map[dataplane.Target]struct{}
	mended    time.Time
	tries     backoff.Tries // of Watch
	watchErr  error
	sent      map[model.Name][]model.Ejection
	answers   chan answer
	probing   chan struct{} // as many as are asked now
	running   sync.WaitGroup
}

// answer is what the node found.
type answer struct {
	at    dataplane.Target
	found Outcome
}

// New returns an Ejector that does nothing until Run.
func New(o Options) *Ejector {
	o.Clock = cmp.Or[clock.WithTicker](o.Clock, clock.RealClock{})
	if o.Dial == nil {
		o.Dial = dial
	}
	if o.Ejected == nil {
		o.Ejected = func(model.Name, *model.Ejection) {}
	}
	if o.Count == nil {
		o.Count = func(int) {}
	}
	return &Ejector{
		Options: o, unwatched: true, judge: newJudge(), frontends: map[plan.Key]*plan.Frontend{},
		sent:    map[model.Name][]model.Ejection{},
		answers: make(chan answer, maxProbes), probing: make(chan struct{}, maxProbes),
	}
}

// Run works until ctx is done, and then returns nil. It is called once. Nothing is watched after it.
func (e *Ejector) Run(ctx context.Context) error {
	tick := e.Clock.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			e.running.Wait()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
			defer cancel()
			if err := e.Witness.Watch(ctx, nil); err != nil {
				e.Logger.V(1).Info("What noticed which endpoints do not answer stays", "reason", err.Error())
			}
			return nil
		case a := <-e.answers:
			e.judge.probed(a.at, a.found, e.Clock.Now())
		case <-tick.C():
			e.look(ctx)
			e.publish()
		}
	}
}

// Err returns why it is not seen which endpoints answer, nil if it is.
func (e *Ejector) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failure
}

// look asks the witness once, if an endpoint is watched. Where it cannot see, nothing speaks against an
// endpoint, and those that are left out come back.
func (e *Ejector) look(ctx context.Context) {
	now := e.Clock.Now()
	e.follow()
	e.judge.keep(func(at dataplane.Target) bool { return len(e.services[at]) > 0 })
	err := e.watch(ctx, now)
	var todo []probe
	if failures, seen, blind := e.ask(ctx); blind == nil {
		todo = e.judge.look(now, failures, seen)
	} else {
		e.unwatched = true // what the witness needs may be gone
		err = errors.Join(err, blind)
		todo = e.judge.advance(now, nil, nil)
	}
	e.report(ctx, err)
	for _, p := range todo {
		e.probe(ctx, p)
	}
}

// probe has the node connect to an endpoint. Suspects do not wait for their turn: so many at a time are all of
// a node, and clients wait for them.
func (e *Ejector) probe(ctx context.Context, p probe) {
	if p.suspect {
		select {
		case e.probing <- struct{}{}:
		default:
			e.judge.probed(p.Target, Silent, e.Clock.Now())
			return
		}
	}
	e.running.Go(func() {
		if !p.suspect {
			select {
			case e.probing <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
		dialing, cancel := context.WithTimeout(ctx, p.timeout)
		found := e.Dial(dialing, p.Target)
		cancel()
		<-e.probing
		select {
		case e.answers <- answer{p.Target, found}:
		case <-ctx.Done():
		}
	})
}

// watch tells the witness whom to watch, if that is new to it, and now and then to mend what it needs.
func (e *Ejector) watch(ctx context.Context, now time.Time) error {
	onTrial := e.judge.trials()
	mend := len(e.services) > 0 && now.Sub(e.mended) >= mendPeriod
	if !e.unwatched && !mend && sameKeys(onTrial, e.onTrial) {
		return e.watchErr
	}
	if !e.tries.Due(now) {
		return e.watchErr
	}
	targets := make(map[dataplane.Target]dataplane.OnTrial, len(e.services))
	for at := range e.services {
		_, targets[at] = onTrial[at]
	}
	err := e.Witness.Watch(ctx, targets)
	done := err == nil || errors.Is(err, dataplane.ErrTooManyWatched)
	if done {
		e.tries.Succeed()
	} else {
		e.tries.Fail(err, now)
	}
	e.unwatched, e.onTrial, e.mended, e.watchErr = !done, onTrial, now, err
	return err
}

// report logs an error once, and remembers it.
func (e *Ejector) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	before := e.Err()
	e.mu.Lock()
	e.failure = err
	e.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		e.Logger.Error(err, "Cannot see which endpoints do not answer")
	}
}

func (e *Ejector) ask(ctx context.Context) (failures []dataplane.Failure, seen map[dataplane.Target]dataplane.Seen, err error) {
	if len(e.services) == 0 {
		return nil, nil, nil
	}
	if failures, err = e.Witness.Failures(ctx); err != nil {
		return nil, nil, err
	}
	failures = slices.DeleteFunc(failures, func(f dataplane.Failure) bool { return len(e.services[f.Target]) == 0 })
	if at := e.judge.interesting(failures); len(at) > 0 {
		seen, err = e.Witness.Seen(ctx, at)
	}
	return failures, seen, err
}

// Committed implements engine.Observer.
func (e *Ejector) Committed(c *engine.Commit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for before, now := range c.Change.Frontends() {
		if before != nil && before.Watched {
			delete(e.frontends, before.Key)
			e.changed = true
		}
		if now != nil && now.Watched {
			e.frontends[now.Key] = now
			e.changed = true
		}
	}
}

// follow takes over whose endpoints are watched, if that has changed.
func (e *Ejector) follow() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.changed {
		return
	}
	before := e.services
	e.changed, e.services = false, map[dataplane.Target][]model.Name{}
	ejected := map[dataplane.Target]struct{}{}
	for _, f := range e.frontends {
		add := func(list []plan.Endpoint) {
			for _, p := range list {
				at := dataplane.Target{AddrPort: p.AddrPort, Protocol: f.Protocol}
				if of := e.services[at]; !slices.Contains(of, f.Service) {
					e.services[at] = append(of, f.Service)
				}
			}
		}
		for _, r := range f.Routes() {
			add(r.Endpoints)
		}
		add(f.Ejected)
		for _, p := range f.Ejected {
			at := dataplane.Target{AddrPort: p.AddrPort, Protocol: f.Protocol}
			ejected[at] = struct{}{}
			if one := e.judge.untold(at); one != nil {
				e.Ejected(f.Service, one)
			}
		}
	}
	e.Count(len(ejected))
	e.unwatched = e.unwatched || !sameKeys(before, e.services)
}

func sameKeys[K comparable, V any](a, b map[K]V) bool {
	for k := range a {
		if _, ok := b[k]; !ok {
			return false
		}
	}
	return len(a) == len(b)
}

// publish tells the engine what changed.
func (e *Ejector) publish() {
	now := map[model.Name][]model.Ejection{}
	for _, one := range e.judge.ejected() {
		for _, service := range e.services[dataplane.Target{AddrPort: one.Endpoint, Protocol: one.Protocol}] {
			now[service] = append(now[service], one)
		}
	}
	var events []model.Event
	for service, list := range now {
		if !slices.Equal(list, e.sent[service]) {
			events = append(events, model.SetEjected{Service: service, Endpoints: list})
		}
	}
	for service := range e.sent {
		if now[service] == nil {
			events = append(events, model.SetEjected{Service: service})
		}
	}
	if len(events) == 0 {
		return
	}
	e.sent = now
	e.Sink.Update(events...)
}

// dial connects to an endpoint of TCP from this process, and closes the connection at once.
func dial(ctx context.Context, at dataplane.Target) Outcome {
	if at.Protocol != model.TCP {
		return Silent
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.String())
	switch {
	case err == nil:
		_ = c.Close()
		return Answered
	case errors.Is(err, socketerror.ConnectionRefused):
		return Refused
	}
	return Silent
}
