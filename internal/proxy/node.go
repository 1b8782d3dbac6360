package proxy

import (
	"context"

	"sluice/internal/engine"
	"sluice/internal/observe/health"
	"sluice/internal/observe/nodecondition"
)

// reportToNode has the Node object say what /readyz says, until ctx ends.
func (p *proxy) reportToNode(ctx context.Context) error {
	o := nodecondition.Options{
		Nodes: p.client.CoreV1().Nodes(), Node: p.settings.Plan.NodeName, Taint: p.options.StartupTaint,
		NotReady: func() string { return health.NotReady(p.verdict(), p.engine.Status(), p.clock.Now()) },
		UID:      p.nodeUID,
		Logger:   p.logger.WithName("node"), Clock: p.clock,
	}
	if p.options.NodeCondition {
		o.Condition = nodecondition.Type
		if p.settings.Instance != "" {
			o.Condition += "." + p.settings.Instance
		}
	}
	return nodecondition.Run(ctx, o)
}

// nodeUID returns the UID of the Node, "" while there is none.
func (p *proxy) nodeUID() (uid string) {
	p.engine.Inspect(func(v engine.View) {
		if node := v.State.Node(); node != nil {
			uid = node.UID
		}
	})
	return uid
}
