package iptables

import (
	"context"
	"errors"
	"fmt"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/plan"
)

// Mode is proxy mode iptables.
var Mode = dataplane.Mode{
	Name:                  "iptables",
	Open:                  open,
	Missing:               iptables.Installed,
	Modules:               []string{"nf_conntrack", "nf_nat", "xt_conntrack", "xt_comment", "xt_mark", "xt_statistic", "xt_MASQUERADE", "xt_addrtype"},
	Render:                Render,
	Remove:                Remove,
	Detect:                Detect,
	UnfilteredExternalIPs: true,
	Chains:                dataplane.Chains(allChains),
	Variants:              []string{iptables.NFT.String(), iptables.Legacy.String()},
	// As upstream: packets to other ports of a ClusterIP are not refused.
	Adjust: func(c *plan.Config) { c.FrontendsOnly = true },
	Configuration: dataplane.Configuration{
		Section:            "iptables",
		MasqueradeSection:  "iptables",
		LocalhostNodePorts: true,
	},
	Metrics: []string{
		"kubeproxy_sync_full_proxy_rules_duration_seconds",
		"kubeproxy_sync_partial_proxy_rules_duration_seconds",
		"kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
	},
	Counters: []dataplane.Metric{
		{Name: rulesTotal, Help: "Rules of this proxy in the tables of iptables.", Labels: []string{"table", "ip_family"}},
		{Name: rulesLast, Help: "Rules that the last change wrote.", Labels: []string{"table", "ip_family"}},
		{Name: restoreFailures, Help: "Writes to iptables that failed.", Labels: []string{"ip_family"}, Counter: true},
		{Name: partialRestoreFailures, Help: "Writes to iptables of a change only that failed.", Labels: []string{"ip_family"}, Counter: true},
		{Name: invalidDropped, Help: "Packets dropped because connection tracking found them invalid.", Counter: true},
	},
}

// Upstream's metrics of this mode.
const (
	rulesTotal             = "kubeproxy_sync_proxy_rules_iptables_total"
	rulesLast              = "kubeproxy_sync_proxy_rules_iptables_last"
	restoreFailures        = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
	partialRestoreFailures = "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total"
	invalidDropped         = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"
)

func open(ctx context.Context, o dataplane.Options) (dataplane.Dataplane, error) {
	variant, err := parseVariant(o.Variant)
	if err != nil {
		return nil, err
	}
	d := New(Options{Logger: o.Logger, NetNS: o.NetNS, Variant: variant})
	if err := d.Check(ctx); err != nil {
		if errors.Is(err, iptables.ErrLocked) {
			err = &dataplane.BusyError{Err: err}
		}
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// parseVariant returns the variant of that name; empty means that it is found out.
func parseVariant(name string) (iptables.Variant, error) {
	for _, v := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
		if name == v.String() {
			return v, nil
		}
	}
	if name != "" {
		return iptables.AutoVariant, fmt.Errorf("there is no variant %q of iptables", name)
	}
	return iptables.AutoVariant, nil
}
