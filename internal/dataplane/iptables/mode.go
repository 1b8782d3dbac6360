//go:build linux

package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
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

// Detect finds the chains of iptables mode, ours and upstream's, unless they are those of upstream's
// ipvs mode.
func Detect(i *dataplane.Inventory) (d dataplane.Detection) {
	if !i.HasChain(iptables.IPVSChains.Has) {
		d.Traces = i.ChainTraces(nat, servicesChain)
	}
	return d
}

// Remove removes the chains of iptables mode, ours and upstream's, in both variants
// and families. With them it removes those of upstream's IPVS mode, since the ones
// lead into the others. The chains of iptables mode stay in the variant that
// o.Running uses. With o.OwnOnly only those are removed that upstream has not; it writes
// its own rules into the others, after which none leads into ours.
func Remove(ctx context.Context, o dataplane.RemoveOptions) error {
	var errs []error
	for _, v := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
		chains := iptables.IPVSChains
		switch {
		case o.OwnOnly:
			chains = ownChains
		case !inUse(o.Running, v):
			chains = allChains
		}
		if o.KeepMark {
			chains = chains.Without(markChain)
		}
		errs = append(errs, iptables.RemoveChains(ctx, iptables.RemoveOptions{
			Logger: o.Logger, Variant: v, Families: model.Families[:], Chains: chains,
		}))
	}
	return errors.Join(errs...)
}

func inUse(running dataplane.Dataplane, v iptables.Variant) bool {
	d, ok := running.(*Dataplane)
	return ok && (d.Variant() == v || d.Variant() == iptables.AutoVariant)
}

// Count implements dataplane.Counter.
func (d *Dataplane) Count(_ context.Context, families []model.Family, add func(metric string, value float64, labels ...string)) {
	type size struct{ total, last int }
	sizes := map[iptables.Table]size{}
	var failures, partialFailures map[model.Family]uint64
	var counted bool
	d.locked(func() {
		for _, s := range d.states {
			for _, t := range s.tables {
				sizes[t.Table] = size{t.rules(), t.written}
			}
		}
		failures, partialFailures, counted = maps.Clone(d.failures), maps.Clone(d.partialFailures), d.features.NFAcct
	})
	for _, f := range families {
		for _, name := range []string{nat, filter} { // as upstream
			n := sizes[iptables.Table{Family: f, Name: name}]
			add(rulesTotal, float64(n.total), name, f.String())
			add(rulesLast, float64(n.last), name, f.String())
		}
		add(restoreFailures, float64(failures[f]), f.String())
		add(partialRestoreFailures, float64(partialFailures[f]), f.String())
	}
	if !counted {
		return
	}
	if dropped, err := iptables.ReadCounter(d.netns, invalidCounter); err == nil {
		add(invalidDropped, float64(dropped))
	}
}
