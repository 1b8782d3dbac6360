package userspace

import (
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Mode is proxy mode userspace.
var Mode = dataplane.Mode{
	Name:   "userspace",
	Open:   open,
	Render: Render,
	Remove: nftables.Remove,
	Adjust: func(c *plan.Config) {
		c.DropInvalid = false
		c.Algorithms = model.NewAlgorithms(model.RoundRobin, model.SourceHash, model.Maglev)
		c.DefaultAlgorithm = model.RoundRobin
		c.ProxyConnects = true
		c.CanEject = true
	},
	// Upstream's had no section of its own: it was configured with that of iptables.
	Configuration: dataplane.Configuration{
		Section:           "iptables",
		MasqueradeSection: "iptables",
		PortRange:         true,

		LocalhostNodePorts: true,
	},
	Counters:       metrics,
	BesideIPTables: true,
	Named:          true,
}
