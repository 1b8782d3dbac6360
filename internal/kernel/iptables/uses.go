package iptables

import (
	"context"
	"maps"
	"slices"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
)

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
