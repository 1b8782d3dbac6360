//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"os"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// skipKernelCheck is upstream's environment variable that makes Check accept a kernel
// whose version is too old.
const skipKernelCheck = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"

// Mode is proxy mode nftables.
var Mode = dataplane.Mode{
	Name: "nftables",
	Open: func(ctx context.Context, o dataplane.Options) (dataplane.Dataplane, error) { return Open(ctx, o, nil) },
	CheckRelease: func(release string) error {
		if os.Getenv(skipKernelCheck) != "" {
			return nil
		}
		return checkRelease(release)
	},
	Modules: []string{
		"nf_tables", "nf_conntrack", "nf_nat", "nft_chain_nat", "nft_ct", "nft_nat", "nft_masq", "nft_numgen", "nft_hash",
		"nft_reject", "nft_reject_ipv4", "nft_reject_ipv6", "nft_fib", "nft_fib_ipv4", "nft_fib_ipv6",
	},
	Render: Render,
	Remove: Remove,
	Detect: Detect,
	// DropInvalid is as upstream's: tcpBeLiberal is the only way to serve clients behind a network
	// that reorders packets.
	Adjust: func(c *plan.Config) {
		c.DropInvalid = false
		c.CanEject = true
		c.CanDirectReturn = true
		c.PortRanges = true
		c.Algorithms = model.NewAlgorithms(model.RoundRobin, model.SourceHash, model.Maglev)
	},
	Configuration: dataplane.Configuration{
		Section:           "nftables",
		MasqueradeSection: "nftables",
		InheritSection:    "iptables",
		PrimaryNodePorts:  true,
		CountsLoopback:    true,
		FlowTables:        true,
	},
	Metrics: []string{
		"kubeproxy_sync_full_proxy_rules_duration_seconds",
		"kubeproxy_sync_partial_proxy_rules_duration_seconds",
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
		"kubeproxy_nftables_localhost_nodeport_listeners",
		"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		"kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
		"sluice_flow_table_devices",
		"sluice_flow_table_connections",
	},
	BesideIPTables: true,
	Named:          true,
}

// Open opens a Dataplane, with the target of a mode that builds on it; nil for none.
func Open(ctx context.Context, o dataplane.Options, target *Target) (*Dataplane, error) {
	d, err := New(Options{Logger: o.Logger, NetNS: o.NetNS, Instance: o.Instance, Uncounted: o.Uncounted, Target: target,
		AnyKernel: os.Getenv(skipKernelCheck) != ""})
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	if err := d.Check(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}
