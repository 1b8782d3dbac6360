//go:build linux

package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-logr/logr"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
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

// Use is a rule of another program that leads into a chain of a set.
type Use struct {
	Variant Variant
	Table   Table
	Chain   string
	By      string // the chain that the rule is in
}

// Command is the name of the command that lists the rule.
func (u *Use) Command() string { return Command(u.Table.Family) + "-" + u.Variant.String() }

// Uses finds the chains of a set that RemoveChains cannot remove, because others
// lead into them, in both variants.
func Uses(ctx context.Context, conn *nft.Conn, set Chains) ([]Use, error) {
	var uses []Use
	for _, f := range inet.Families {
		tables, err := nftTables(ctx, conn, f)
		if err != nil {
			return uses, err
		}
		for _, t := range tables {
			r, err := readNFT(ctx, conn, t, set)
			if err != nil {
				return uses, err
			}
			uses = append(uses, r.uses(NFT, t, set)...)
		}
	}
	for _, f := range inet.Families {
		read, err := LegacyFamily(f).ReadAll(TableNames...)
		if err != nil {
			return uses, err
		}
		for _, name := range TableNames {
			if t := read[name]; t != nil {
				r := choose(legacyJumps(t), set)
				uses = append(uses, r.uses(Legacy, Table{f, name}, set)...)
			}
		}
	}
	return uses, nil
}

func legacyJumps(t *xtables.Table) jumps {
	found := jumps{builtin: map[string]bool{}}
	for name := range t.Builtin {
		found.builtin[name] = true
	}
	for _, name := range t.Chains {
		found.builtin[name] = false
	}
	for _, r := range t.Rules {
		if r.Jump != "" {
			found.rules = append(found.rules, jump{from: r.Chain, to: r.Jump})
		}
	}
	return found
}

// uses are the chains that stay because of rules of others, and not because of
// another chain that stays.
func (r *removal) uses(v Variant, t Table, set Chains) (uses []Use) {
	for _, chain := range slices.Sorted(maps.Keys(r.kept)) {
		if by := r.kept[chain]; !set.Has(by) {
			uses = append(uses, Use{v, t, chain, by})
		}
	}
	return uses
}
