//go:build linux

package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-logr/logr"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// driver is implemented by iptables.Commands, and by a fake in tests.
type driver interface {
	List(context.Context, iptables.Table) (*iptables.Listing, error)
	Rules(ctx context.Context, t iptables.Table, chain string) ([]string, error)
	Restore(context.Context, model.Family, io.Reader) error
	RemoveChains(context.Context, logr.Logger, model.Family, iptables.Chains) error
}

// Check returns an error that says what is missing if iptables mode cannot work
// here. New succeeds where Check fails.
func (d *Dataplane) Check(ctx context.Context) error {
	commands, err := iptables.Find(ctx, d.variant, d.netns)
	if err != nil {
		return err
	}
	if err := commands.Has(ctx, model.IPv4); err != nil {
		return fmt.Errorf("iptables mode cannot work here: %w (run the proxy as root or with CAP_NET_ADMIN and CAP_NET_RAW, on a kernel with iptables)", err)
	}
	return nil
}

// CheckFamily implements dataplane.FamilyChecker.
func (d *Dataplane) CheckFamily(ctx context.Context, family model.Family) error {
	commands, err := iptables.Find(ctx, d.variant, d.netns)
	if err != nil {
		return err
	}
	return commands.Has(ctx, family)
}

// prepare finds commands, features and families, once.
func (d *Dataplane) prepare(ctx context.Context) error {
	if d.driver != nil {
		return nil
	}
	commands, err := iptables.Find(ctx, d.variant, d.netns)
	if err != nil {
		return err
	}
	features, err := commands.Probe(ctx, probeChain, invalidCounter)
	if err != nil {
		return fmt.Errorf("find out what iptables can do here: %w", err)
	}
	families := []model.Family{model.IPv4}
	if err := commands.Has(ctx, model.IPv6); err == nil {
		families = append(families, model.IPv6)
	} else if ctx.Err() != nil {
		return err
	} else {
		d.logger.V(1).Info("IPv6 cannot be had: IPv4 only", "reason", err.Error())
	}
	monitor, err := iptables.NewMonitor(commands.Variant, d.netns, families, Owns)
	if err != nil {
		return err
	}
	d.logger.Info("Using iptables", "variant", commands.Variant.String(), "program", commands.Path(),
		"missing", features.Missing())
	d.locked(func() {
		d.driver, d.used, d.monitor, d.features, d.families = commands, commands.Variant, monitor, features, families
	})
	d.batch = cmp.Or(d.batch, batchSize(commands.Variant))
	return nil
}

// batchSize is how many chains are best named in one input. The time that
// iptables-nft takes grows with the number of rules times the number of chains.
// Legacy writes the whole table each time.
func batchSize(v iptables.Variant) int {
	if v == iptables.NFT {
		return 256
	}
	return math.MaxInt
}

// Variant is the variant in use; AutoVariant before the first Reconcile.
func (d *Dataplane) Variant() (v iptables.Variant) {
	d.locked(func() { v = d.used })
	return v
}

// invalidCounter is the name of the nfacct counter of dropped invalid packets, the
// same as upstream's.
const invalidCounter = "ct_state_invalid_dropped_pkts"

// Errors of frontends that cannot be programmed on this host.
var (
	errNoFamily   = errors.New("there is no iptables for its IP family here (install ip6tables, and use a kernel with it)")
	errNoAffinity = errors.New("session affinity needs the match recent of iptables (load the module xt_recent, or use a kernel with CONFIG_NETFILTER_XT_MATCH_RECENT)")
	errNoSCTP     = errors.New("SCTP needs the match sctp of iptables (load the module xt_sctp, or use a kernel with CONFIG_NETFILTER_XT_MATCH_SCTP)")
)

// lacks returns an error if a frontend needs a feature that is not available.
// Without it, such frontends would have to be found by refused writes, one by one.
func lacks(features *iptables.Features, f *plan.Frontend) error {
	switch {
	case f.Affinity > 0 && !features.Recent:
		return errNoAffinity
	case f.Protocol == model.SCTP && !features.SCTP:
		return errNoSCTP
	}
	return nil
}
