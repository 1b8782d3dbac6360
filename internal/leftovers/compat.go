package leftovers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"

	"sluice/internal/nft"
)

var families = []nft.Family{nft.IP, nft.IP6}

// attempts is how often a table that somebody else changes meanwhile is read
// and written anew.
const attempts = 5

// chainsAtOnce bounds a transaction: the kernel lets nobody else change rules
// while it works on one.
const chainsAtOnce = 2000

// removeCompat removes the chains that kube-proxy made by iptables-nft, whose
// tables are tables of nftables.
func removeCompat(ctx context.Context, log logr.Logger, conn *nft.Conn, names chainNames) error {
	var errs []error
	for _, family := range families {
		present, err := tablesOf(ctx, conn, family)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, name := range tables {
			if !slices.Contains(present, name) {
				continue
			}
			table := nft.Table{Family: family, Name: name}
			if err := removeCompatTable(ctx, log, conn, table, names); err != nil {
				errs = append(errs, fmt.Errorf("table %s %s: %w", family, name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func removeCompatTable(ctx context.Context, log logr.Logger, conn *nft.Conn, table nft.Table, names chainNames) error {
	for attempt := 1; ; attempt++ {
		jumps, r, err := readCompat(ctx, conn, table, names)
		if err == nil {
			if r.empty() {
				tellKept(log, table.Family.String(), table.Name, r.kept)
				return nil
			}
			if err = deleteCompat(ctx, conn, table, jumps, &r); err == nil {
				log.Info("Removed the chains of an earlier kube-proxy", "family", table.Family.String(), "table", table.Name,
					"chains", len(r.chains), "kind", "iptables-nft")
				tellKept(log, table.Family.String(), table.Name, r.kept)
				return nil
			}
		}
		if ctx.Err() != nil || attempt == attempts {
			return err
		}
	}
}

func readCompat(ctx context.Context, conn *nft.Conn, table nft.Table, names chainNames) ([]nft.Jump, removal, error) {
	chains, err := conn.Chains(ctx, table)
	if err != nil {
		return nil, removal{}, err
	}
	jumps, err := conn.Jumps(ctx, table)
	if err != nil {
		return nil, removal{}, err
	}
	rules := ruleset{base: map[string]bool{}}
	for _, c := range chains {
		rules.base[c.Name] = c.Type != ""
	}
	for i, j := range jumps {
		rules.jumps = append(rules.jumps, jump{j.Chain, j.Target, i})
	}
	return jumps, choose(rules, names), nil
}

// deleteCompat first takes the chains out of the packets' way, at one stroke,
// and then removes them: all rules before any chain, because the chains lead
// into each other.
func deleteCompat(ctx context.Context, conn *nft.Conn, table nft.Table, jumps []nft.Jump, r *removal) error {
	unlink := &nft.Batch{}
	for _, j := range r.rules {
		unlink.DeleteRule(table, j.from, jumps[j.rule].Handle)
	}
	if err := conn.Commit(ctx, unlink); err != nil {
		return fmt.Errorf("remove the rules that lead to the chains: %w", err)
	}
	for _, step := range []func(*nft.Batch, nft.Table, string){(*nft.Batch).FlushChain, (*nft.Batch).DeleteChain} {
		for chains := range slices.Chunk(r.chains, chainsAtOnce) {
			b := &nft.Batch{}
			for _, chain := range chains {
				step(b, table, chain)
			}
			if err := conn.Commit(ctx, b); err != nil {
				return fmt.Errorf("remove chains: %w", err)
			}
		}
	}
	return nil
}

// tellKept says which chains stay and why.
func tellKept(log logr.Logger, family, table string, kept map[string]string) {
	for chain, by := range kept {
		log.Info("Kept a chain of an earlier kube-proxy, another leads into it", "family", family, "table", table,
			"chain", chain, "usedBy", by)
	}
}
