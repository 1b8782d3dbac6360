package ipvs

import (
	"cmp"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/ipvs/leftover"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// defaultScheduler is upstream's.
const defaultScheduler = "rr"

// Mode is proxy mode ipvs.
var Mode = dataplane.Mode{
	Name:    "ipvs",
	Open:    open,
	Modules: []string{"ip_vs", "ip_vs_rr", "nf_tables", "nf_conntrack"},
	Render:  Render,
	Remove:  Remove,
	Drain:   leftover.Drain,
	Detect:  leftover.Detect,
	Adjust: func(c *plan.Config) {
		c.DropInvalid = false
		c.CanEject = true
		c.PortRanges = true // by the rules: the balancer has a server for each port
		c.Algorithms = model.NewAlgorithms(model.RoundRobin, model.SourceHash, model.Maglev, model.LeastConnections)
		c.Balancer = plan.Balancer{Name: "IPVS", Default: cmp.Or(c.Balancer.Default, defaultScheduler)}
		c.KnownNodePortIPs = true
	},
	Configuration: dataplane.Configuration{
		Section:           "ipvs",
		Gate:              "KubeProxyIPVS",
		MasqueradeSection: "iptables",
	},
	// The metric counts what upstream does with iptables in this mode: here it stays 0.
	Metrics:        []string{"kubeproxy_sync_proxy_rules_iptables_restore_failures_total"},
	BesideIPTables: true,
}
