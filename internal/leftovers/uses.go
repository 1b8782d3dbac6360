package leftovers

import (
	"context"
	"errors"
	"maps"
	"slices"

	driver "sluice/internal/iptables"
	"sluice/internal/nft"
	"sluice/internal/xtables"
)

// Use is a rule of another program that leads into a chain of kube-proxy's.
type Use struct {
	Kind         Kinds // IPTablesNFT or IPTablesLegacy
	Command      string
	Table, Chain string
	By           string // the chain that the rule is in
}

// Uses finds the chains that Remove has to leave because others lead into them.
// It leaves out KUBE-MARK-MASQ, which works without a kube-proxy in iptables
// mode.
func Uses(ctx context.Context, conn *nft.Conn) ([]Use, error) {
	names := proxyChains.and(ipvsChains).without(driver.MarkChain)
	compat, err := compatUses(ctx, conn, names)
	legacy, lerr := legacyUses(names)
	return append(compat, legacy...), errors.Join(err, lerr)
}

func compatUses(ctx context.Context, conn *nft.Conn, names chainNames) (out []Use, err error) {
	for _, family := range families {
		present, err := tablesOf(ctx, conn, family)
		if err != nil {
			return out, err
		}
		for _, table := range tables {
			if !slices.Contains(present, table) {
				continue
			}
			_, r, err := readCompat(ctx, conn, nft.Table{Family: family, Name: table}, names)
			if err != nil {
				return out, err
			}
			command := map[nft.Family]string{nft.IP: xtables.IPv4.Command, nft.IP6: xtables.IPv6.Command}[family]
			out = append(out, r.uses(Use{Kind: IPTablesNFT, Command: command, Table: table}, names)...)
		}
	}
	return out, nil
}

func legacyUses(names chainNames) (out []Use, err error) {
	for _, family := range []*xtables.Family{xtables.IPv4, xtables.IPv6} {
		read, err := family.ReadAll(tables...)
		if err != nil {
			return out, err
		}
		for _, table := range tables {
			if t := read[table]; t != nil {
				r := choose(rulesetOf(t), names)
				out = append(out, r.uses(Use{Kind: IPTablesLegacy, Command: family.Command, Table: table}, names)...)
			}
		}
	}
	return out, nil
}

func rulesetOf(t *xtables.Table) ruleset {
	rules := ruleset{base: map[string]bool{}}
	for name := range t.Builtin {
		rules.base[name] = true
	}
	for _, name := range t.Chains {
		rules.base[name] = false
	}
	for i, r := range t.Rules {
		if r.Jump != "" {
			rules.jumps = append(rules.jumps, jump{r.Chain, r.Jump, i})
		}
	}
	return rules
}

// uses are the chains that stay because of others' rules, and not because of
// another chain that stays.
func (r *removal) uses(where Use, names chainNames) (out []Use) {
	for _, chain := range slices.Sorted(maps.Keys(r.kept)) {
		if by := r.kept[chain]; !names.has(by) {
			where.Chain, where.By = chain, by
			out = append(out, where)
		}
	}
	return out
}
