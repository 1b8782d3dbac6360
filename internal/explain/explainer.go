package explain

import (
	"context"
	"net/netip"
	"slices"

	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/plan"
)

// Options is what an Explainer is made of.
type Options struct {
	Engine *engine.Engine
	// Kernel is asked for what it holds, nil if the mode cannot tell.
	Kernel dataplane.Describer
	// InterfaceTo names the interface that leads to an address, "" if none does;
	// nil if that cannot be told.
	InterfaceTo func(netip.Addr) string
	// IsLocal tells whether the routing table calls an address local; nil if only
	// those are known to be that are on an interface.
	IsLocal func(netip.Addr) (bool, error)

	// Stale says why what is known may be out of date, "" if it is not; nil where it
	// never is.
	Stale func() string

	Mode  string
	Node  string
	Clock clock.PassiveClock
}

// Explainer answers questions about a running proxy.
type Explainer struct{ Options }

// New returns an Explainer.
func New(o Options) *Explainer {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Explainer{o}
}

// Explain answers a question. The error is an ErrQuestion.
func (e *Explainer) Explain(ctx context.Context, q Question) (*Reply, error) {
	l, err := e.understand(q)
	if err != nil {
		return nil, err
	}
	reply := &Reply{Mode: e.Mode, Node: e.Node, Flows: true}
	if e.Stale != nil {
		reply.Stale = e.Stale()
	}
	status := e.Engine.Status()
	if !status.Synced {
		reply.Flows = false
		reply.Answers = []Answer{notInSync(q, status)}
		return reply, nil
	}
	var findings []finding
	e.Engine.Inspect(func(v engine.View) {
		l.View = v
		findings, reply.Omitted = l.look()
	})
	for i := range findings {
		a := e.answer(ctx, &findings[i])
		reply.Flows = reply.Flows && a.Flows
		reply.Answers = append(reply.Answers, a)
	}
	return reply, nil
}

func (e *Explainer) understand(q Question) (*looker, error) {
	l := &looker{question: q, in: q.Interface, isLocal: e.IsLocal}
	var err error
	if l.target, err = parseTarget(q.To); err != nil {
		return nil, err
	}
	if slices.Contains([]string{"", plan.PodClient.String(), plan.NodeClient.String(), plan.OutsideClient.String()}, q.From) {
		return l, nil
	}
	l.source, err = netip.ParseAddr(q.From)
	if err != nil {
		return nil, misunderstood("--from %q is neither an IP nor one of pod, node, outside", q.From)
	}
	l.source = l.source.Unmap().WithZone("")
	if to := l.target.key.Addr(); to.IsValid() && to.Is4() != l.source.Is4() {
		return nil, misunderstood("a packet from %s cannot go to %s: they are of different families", l.source, to)
	}
	if l.in == "" && e.InterfaceTo != nil {
		l.in = e.InterfaceTo(l.source)
	}
	return l, nil
}

// answer adds to a finding what the engine and the kernel say of it.
func (e *Explainer) answer(ctx context.Context, f *finding) Answer {
	c := composer{finding: f, now: e.Clock.Now(), mode: e.Mode}
	if fe := f.decision.Frontend; fe != nil {
		if s, ok := e.Engine.Frontend(fe.Key); ok {
			c.status = &s
		}
		c.kernel, c.kernelErr = e.describe(ctx, fe.Key, f)
	}
	return c.compose()
}

func (e *Explainer) describe(ctx context.Context, key plan.Key, f *finding) (*dataplane.Description, error) {
	if e.Kernel == nil {
		return nil, nil
	}
	d, err := e.Kernel.Describe(ctx, dataplane.Destination{Key: key, IP: f.packet.To.Addr}, f.packet.Source)
	if err != nil {
		return nil, err
	}
	return &d, nil
}
