package telemetry

import (
	"context"
	"fmt"

	"k8s.io/component-base/metrics"

	"sluice/internal/dataplane/iptables"
	"sluice/internal/model"
)

// labelTable is the table of iptables that a number is about.
const labelTable = "table"

// iptablesTables are those that upstream has numbers of.
var iptablesTables = []string{"nat", "filter"}

// IPTablesOptions is what the metrics of iptables mode need.
type IPTablesOptions struct {
	// Families are those that the node can do.
	Families []model.Family
	// Stats are those of the dataplane. They are asked for at each scrape.
	Stats func() iptables.Stats
	// InvalidDropped is how many packets were dropped because connection
	// tracking found them invalid. It is false where nobody counts them.
	InvalidDropped func(context.Context) (uint64, bool)
	// LocalhostAccepted is how many connections to node ports on loopback were
	// accepted. Nil for none.
	LocalhostAccepted func() uint64
}

// RegisterIPTables adds the metrics that upstream has in iptables mode only.
func RegisterIPTables(r Registry, o IPTablesOptions) error {
	c := &iptablesMetrics{
		IPTablesOptions: o,
		rules:           iptablesDesc("sync_proxy_rules_iptables_total", "Rules of this proxy in the tables of iptables.", labelTable, labelFamily),
		written:         iptablesDesc("sync_proxy_rules_iptables_last", "Rules that the last change wrote.", labelTable, labelFamily),
		failures:        iptablesDesc("sync_proxy_rules_iptables_restore_failures_total", "Writes to iptables that failed.", labelFamily),
		partialFailures: iptablesDesc("sync_proxy_rules_iptables_partial_restore_failures_total", "Writes to iptables of a change only that failed.", labelFamily),
		invalid:         iptablesDesc("iptables_ct_state_invalid_dropped_packets_total", "Packets dropped because connection tracking found them invalid."),
		localhost:       iptablesDesc("iptables_localhost_nodeports_accepted_packets_total", "Connections accepted by node ports on loopback addresses."),
	}
	if err := r.CustomRegister(c); err != nil {
		return fmt.Errorf("register the metrics of iptables mode: %w", err)
	}
	return nil
}

func iptablesDesc(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc("kubeproxy_"+name, help, labels, nil, metrics.ALPHA, "")
}

// iptablesMetrics tells what the dataplane counts.
type iptablesMetrics struct {
	metrics.BaseStableCollector
	IPTablesOptions
	rules, written, failures, partialFailures, invalid, localhost *metrics.Desc
}

// DescribeWithStability is for metrics.StableCollector.
func (c *iptablesMetrics) DescribeWithStability(to chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{c.rules, c.written, c.failures, c.partialFailures, c.invalid, c.localhost} {
		to <- d
	}
}

// CollectWithStability is for metrics.StableCollector.
func (c *iptablesMetrics) CollectWithStability(to chan<- metrics.Metric) {
	stats := c.Stats()
	for _, family := range c.Families {
		for _, name := range iptablesTables {
			table := iptables.Table{Family: family, Name: name}
			to <- metrics.NewLazyConstMetric(c.rules, metrics.GaugeValue, float64(stats.Rules[table]), name, family.String())
			to <- metrics.NewLazyConstMetric(c.written, metrics.GaugeValue, float64(stats.Written[table]), name, family.String())
		}
		to <- metrics.NewLazyConstMetric(c.failures, metrics.CounterValue, float64(stats.RestoreFailures[family]), family.String())
		to <- metrics.NewLazyConstMetric(c.partialFailures, metrics.CounterValue, float64(stats.PartialRestoreFailures[family]), family.String())
	}
	ctx, cancel := context.WithTimeout(context.Background(), countersTimeout)
	defer cancel()
	if dropped, ok := c.InvalidDropped(ctx); ok {
		to <- metrics.NewLazyConstMetric(c.invalid, metrics.CounterValue, float64(dropped))
	}
	accepted := uint64(0)
	if c.LocalhostAccepted != nil {
		accepted = c.LocalhostAccepted()
	}
	to <- metrics.NewLazyConstMetric(c.localhost, metrics.CounterValue, float64(accepted))
}
