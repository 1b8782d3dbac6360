package explain

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/experiment"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// Options configures an Explainer.
type Options struct {
	Engine *engine.Engine
	// Judge returns who judges Services of a view.
	Judge func(engine.View) *verdict.Judge
	// Describer reads what the kernel holds; nil if the mode cannot do that.
	Describer dataplane.Describer
	// InterfaceTo returns the interface that leads to an address, "" if none does;
	// nil if that is not known.
	InterfaceTo func(netip.Addr) string
	// IsLocal reports whether an address is local by the routing table; nil if only
	// the addresses of interfaces are known.
	IsLocal func(netip.Addr) (bool, error)

	// Stale returns why the state may be out of date, "" if it is not; nil where it
	// never is.
	Stale func() string

	// IsInterface reports whether the node has an interface; nil if that is not known.
	IsInterface func(name string) bool

	// NotServed says which label makes a Service one of another proxy.
	NotServed string

	// Manifests is the path of the manifests, "" if there is an API server.
	Manifests string

	// Advisories are what the administrator should mend because the answers depend on
	// it; nil for none.
	Advisories func() []model.Problem

	// Offloaded are the devices at which flow tables of the kernel forward established connections; nil for none.
	Offloaded func() []string

	// Try tries a connection.
	Try func(context.Context, experiment.Attempt) *experiment.Result

	Mode  string
	Node  string
	Clock clock.PassiveClock
}

// Explainer answers questions about a running proxy.
type Explainer struct{ Options }

// New returns an Explainer.
func New(o Options) *Explainer {
	o.Clock = cmp.Or[clock.PassiveClock](o.Clock, clock.RealClock{})
	return &Explainer{o}
}

// Explain answers a question. The error is an ErrQuestion.
func (e *Explainer) Explain(ctx context.Context, q Question) (*Reply, error) {
	var from experiment.Namespace
	var elsewhere error
	if q.Try {
		var err error
		if from, elsewhere, err = e.origin(&q); err != nil {
			return nil, err
		}
		defer from.Close()
	}
	r, err := e.parse(q)
	if err != nil {
		return nil, err
	}
	reply := &Reply{Mode: e.Mode, Node: e.Node, Flows: true}
	if e.Stale != nil {
		reply.Stale = e.Stale()
	}
	if e.Advisories != nil {
		reply.Advisories = e.Advisories()
	}
	status := e.Engine.Status()
	if !status.Synced {
		reply.Flows = false
		reply.Answers = []Answer{notInSyncAnswer(q, status)}
		return reply, nil
	}
	var results []result
	e.Engine.Inspect(func(v engine.View) {
		r.View, r.judge = v, e.Judge(v)
		if results, reply.Omitted, err = r.resolve(); err == nil {
			reply.Service = r.service(results)
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range results {
		a := e.answer(ctx, &results[i])
		reply.Flows = reply.Flows && a.Flows
		reply.Answers = append(reply.Answers, a)
	}
	if reply.Service != nil && reply.Service.Faulty() {
		reply.Flows = false
	}
	switch {
	case elsewhere != nil && !leaveUntried(reply, results):
		return nil, elsewhere
	case elsewhere == nil && q.Try:
		e.try(ctx, reply, results, from)
	}
	return reply, nil
}

func (e *Explainer) parse(q Question) (*resolver, error) {
	r := &resolver{question: q, in: q.Interface, isLocal: e.IsLocal}
	var err error
	if r.target, err = parseTarget(q.To); err != nil {
		return nil, err
	}
	if q.Interface != "" && e.IsInterface != nil && !e.IsInterface(q.Interface) {
		return nil, badQuestion("--interface: this node has no interface %q (ip link lists them)", q.Interface)
	}
	if slices.Contains([]string{"", plan.PodClient.String(), plan.NodeClient.String(), plan.OutsideClient.String()}, q.From) {
		return r, nil
	}
	from, err := parseSource(q.From)
	if err != nil {
		return nil, badQuestion("--from %q is neither an IP nor one of pod, node, outside", q.From)
	}
	r.source, r.port = from.Addr(), from.Port()
	if to := r.target.key.Addr(); to.IsValid() && to.Is4() != r.source.Is4() {
		return nil, badQuestion("a packet from %s cannot go to %s: they are of different families", r.source, to)
	}
	if r.in == "" && e.InterfaceTo != nil {
		r.in = e.InterfaceTo(r.source)
	}
	return r, nil
}

// answer adds the status and what the kernel holds to a result.
func (e *Explainer) answer(ctx context.Context, f *result) Answer {
	c := composer{result: f, now: e.Clock.Now(), mode: e.Mode, manifests: e.Manifests, notServed: e.NotServed}
	if e.Offloaded != nil {
		c.offloaded = e.Offloaded()
	}
	if fe := f.decision.Frontend; fe != nil {
		if s, ok := e.Engine.Frontend(fe.Key); ok {
			c.status = &s
		}
		c.kernel, c.kernelErr = e.describe(ctx, fe.Key, f)
	}
	return c.compose()
}

func (e *Explainer) describe(ctx context.Context, key plan.Key, f *result) (*dataplane.Description, error) {
	if e.Describer == nil {
		return nil, nil
	}
	d, err := e.Describer.Describe(ctx, dataplane.Destination{Key: key, IP: f.packet.To.Addr}, f.packet.Source)
	if err != nil {
		return nil, err
	}
	return &d, nil
}
