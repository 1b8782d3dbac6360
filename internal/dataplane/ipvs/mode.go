//go:build linux

package ipvs

import (
	"cmp"
	"context"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/ipvs/leftover"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/nft"
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

// Remove removes the table, the virtual services of this proxy and of upstream's ipvs
// mode, the routes to them, and upstream's link and sets. If a Dataplane is running, it
// leaves all but the table to Drain: connections depend on it, and the link and the sets
// identify the virtual services. With o.OwnOnly, upstream's stay.
func Remove(ctx context.Context, o dataplane.RemoveOptions) error {
	if err := nftables.Remove(ctx, o); err != nil || o.Running != nil {
		return err
	}
	return leftover.Remove(ctx, o.Logger, o.OwnOnly)
}

// Render writes what Reconcile makes in an empty kernel: the table as nft(8) lists it,
// and the virtual services as ipvsadm(8) saves them. The same input always gives the
// same text.
func Render(w io.Writer, desired *plan.Desired, o dataplane.RenderOptions) error {
	if err := nftables.RenderWith(target, w, desired, o); err != nil {
		return err
	}
	services := map[ipvs.Service][]ipvs.Destination{}
	for k, f := range desired.Frontends {
		if !slices.Contains(o.Families, k.Family()) || !scheduled(f) {
			continue
		}
		for _, ip := range addressesOf(k, &desired.Settings) {
			s := &server{Service: ipvs.Service{Key: keyFor(k, ip)}, frontend: f}
			services[s.wanted()] = s.pool()
		}
	}
	_, err := io.WriteString(w, ipvs.Text(services))
	return err
}

// target has the table leave packets to IPVS.
var target = &nftables.Target{
	Name: "ipvs",
	// After IPVS (priorities 98 and 99), which takes what is for it. What it does not take
	// must not reach a socket of the node.
	Input: nft.Chain{Name: "filter-input", Type: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: 101},
	Rules: func(f model.Family, _ *plan.Settings) nftables.TargetRules {
		return nftables.TargetRules{
			Route: []nft.Rule{{Exprs: nft.Exprs{}.Accept()}},
			Input: nftables.RejectUnserved(f),
		}
	},
}
