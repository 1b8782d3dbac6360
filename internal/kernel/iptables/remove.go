package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-logr/logr"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns"
)

// RemoveOptions configures RemoveChains.
type RemoveOptions struct {
	Logger   logr.Logger
	NetNS    int // 0 is the caller's
	Variant  Variant
	Families []inet.Family
	Chains   Chains
}

// RemoveChains removes chains by their names, from all tables, with the rules in
// built-in chains that lead into them. A chain that rules of others lead into stays,
// with all that it leads to. What cannot be removed does not keep the rest from being
// removed.
//
// Chains of iptables-nft are removed by netlink. Those of legacy, which has no other
// interface, are removed by its commands, which are run only if there are any.
func RemoveChains(ctx context.Context, o RemoveOptions) error {
	var errs []error
	for _, f := range o.Families {
		errs = append(errs, netns.Do(o.NetNS, func() error {
			if o.Variant == Legacy {
				return o.removeLegacy(ctx, f)
			}
			return o.removeNFT(ctx, f)
		}))
	}
	return errors.Join(errs...)
}

// RemoveChains removes chains of a family, as the function of this name does.
func (c *Commands) RemoveChains(ctx context.Context, logger logr.Logger, f inet.Family, set Chains) error {
	return RemoveChains(ctx, RemoveOptions{Logger: logger, NetNS: c.netns, Variant: c.Variant, Families: []inet.Family{f}, Chains: set})
}

// jumps are the chains of a table, and the rules that lead from one into another.
type jumps struct {
	builtin map[string]bool // every chain, and whether it is built in
	rules   []jump
}

// jump is a rule that leads into another chain.
type jump struct {
	from, to string
	// handle identifies it in nftables, text is it in legacy iptables, without -A.
	handle uint64
	text   string
}

// removal lists the objects to remove from a table.
type removal struct {
	rules  []jump   // in built-in chains
	chains []string // with all their rules
	// kept are chains of the set that stay, and the chain that leads into each: one
	// of another program, or one that stays for that reason.
	kept map[string]string
}

func (r *removal) empty() bool { return len(r.rules) == 0 && len(r.chains) == 0 }

// choose finds the chains of a set that no other program uses.
func choose(table jumps, set Chains) removal {
	r := removal{kept: map[string]string{}}
	removable := func(chain string) bool { return set.Has(chain) && !table.builtin[chain] }
	inner := map[string][]string{} // where chains of the set lead
	var used []string
	keep := func(chain, by string) {
		if _, done := r.kept[chain]; !done {
			r.kept[chain] = by
			used = append(used, chain)
		}
	}
	for _, j := range table.rules {
		switch {
		case !removable(j.to):
		case removable(j.from):
			inner[j.from] = append(inner[j.from], j.to)
		case table.builtin[j.from] && slices.Contains(set.Entry, j.to):
			r.rules = append(r.rules, j)
		default:
			keep(j.to, j.from)
		}
	}
	for len(used) > 0 {
		chain := used[0]
		used = used[1:]
		for _, next := range inner[chain] {
			keep(next, chain)
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(table.builtin)) {
		if _, kept := r.kept[chain]; !kept && removable(chain) {
			r.chains = append(r.chains, chain)
		}
	}
	return r
}

// log reports what was removed, and which chains stay and why.
func (r *removal) log(logger logr.Logger, v Variant, t Table) {
	logger = logger.WithValues("table", t.String(), "variant", v.String())
	if !r.empty() {
		logger.Info("Removed the chains of an earlier kube-proxy", "chains", len(r.chains))
	}
	for chain, by := range r.kept {
		logger.Info("Kept a chain of an earlier kube-proxy, another jumps to it", "chain", chain, "usedBy", by)
	}
}
