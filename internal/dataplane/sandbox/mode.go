package sandbox

import (
	"context"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/relay"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Mode is the mode that --sandbox chooses.
var Mode = dataplane.Mode{
	Name: "sandbox",
	Open: func(ctx context.Context, o dataplane.Options) (dataplane.Dataplane, error) {
		budget, err := relay.ProcessBudget(0)
		if err != nil {
			return nil, err
		}
		// Connections outlive the request to end: see Finish.
		return New(context.WithoutCancel(ctx), Options{
			Logger: o.Logger, ResetRemoved: o.Forwarding.ResetRemoved, UDPTimeout: o.Forwarding.UDPTimeout, Tried: o.Forwarding.Tried, Budget: budget}), nil
	},
	Missing:       func() error { return nil },
	WithoutKernel: true,
	Named:         true,
	Adjust: func(c *plan.Config) {
		c.NodePortsOnly, c.ProxyConnects = true, true
		// One socket for all addresses would answer UDP clients from another address
		// than they sent to.
		c.KnownNodePortIPs = true
		c.DefaultAlgorithm = model.RoundRobin // as of userspace mode
		c.Algorithms = model.NewAlgorithms(model.RoundRobin, model.SourceHash, model.Maglev)
	},
	Configuration: dataplane.Configuration{
		Section:            "iptables",
		MasqueradeSection:  "iptables",
		LocalhostNodePorts: true,
	},
	Counters: []dataplane.Metric{
		{Name: listening, Help: "Addresses and ports that node ports are served on.", Labels: []string{"ip_family"}},
		{Name: connections, Help: "TCP connections and UDP clients that reached an endpoint, or that none took.", Labels: []string{"ip_family", "result"}, Counter: true},
	},
}

// Metrics of this mode.
const (
	listening   = "sluice_sandbox_listening"
	connections = "sluice_sandbox_connections_total"
)
