//go:build linux

package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nft"
)

// removeTries is how often a table is read and written again because others changed
// it meanwhile.
const removeTries = 5

// chainsAtOnce bounds a transaction, during which the kernel blocks other changes.
const chainsAtOnce = 2000

// removeNFT removes chains of iptables-nft, whose tables are tables of nftables.
func (o *RemoveOptions) removeNFT(ctx context.Context, f inet.Family) (err error) {
	conn, err := nft.Dial(0, nft.SendBuffer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	tables, err := nftTables(ctx, conn, f)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range tables {
		if err := o.removeNFTTable(ctx, conn, t); err != nil {
			errs = append(errs, fmt.Errorf("table %s %s: %w", NFTFamily(f), t.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (o *RemoveOptions) removeNFTTable(ctx context.Context, conn *nft.Conn, t Table) error {
	for try := 1; ; try++ {
		r, err := readNFT(ctx, conn, t, o.Chains)
		if err == nil {
			err = deleteNFT(ctx, conn, nft.Table{Family: NFTFamily(t.Family), Name: t.Name}, &r)
		}
		if err == nil {
			r.log(o.Logger, NFT, t)
			return nil
		}
		if ctx.Err() != nil || try == removeTries {
			return err
		}
	}
}

func nftTables(ctx context.Context, conn *nft.Conn, f inet.Family) (tables []Table, err error) {
	names, err := conn.TableNames(ctx, NFTFamily(f))
	for _, name := range TableNames {
		if slices.Contains(names, name) {
			tables = append(tables, Table{f, name})
		}
	}
	return tables, err
}

func readNFT(ctx context.Context, conn *nft.Conn, t Table, set Chains) (removal, error) {
	table := nft.Table{Family: NFTFamily(t.Family), Name: t.Name}
	chains, err := conn.Chains(ctx, table)
	if err != nil {
		return removal{}, err
	}
	rules, err := conn.Jumps(ctx, table)
	if err != nil {
		return removal{}, err
	}
	found := jumps{builtin: map[string]bool{}}
	for _, c := range chains {
		found.builtin[c.Name] = c.Type != ""
	}
	for _, j := range rules {
		found.rules = append(found.rules, jump{from: j.Chain, to: j.Target, handle: j.Handle})
	}
	return choose(found, set), nil
}

// deleteNFT first deletes the rules that lead to the chains, atomically, so that
// packets bypass them, and then the chains: all their rules before any chain, because
// they lead into each other.
func deleteNFT(ctx context.Context, conn *nft.Conn, t nft.Table, r *removal) error {
	unlink := &nft.Batch{}
	for _, j := range r.rules {
		unlink.DeleteRule(t, j.from, j.handle)
	}
	if err := conn.Commit(ctx, unlink); err != nil {
		return fmt.Errorf("remove the rules that jump to the chains: %w", err)
	}
	for _, step := range []func(*nft.Batch, nft.Table, string){(*nft.Batch).FlushChain, (*nft.Batch).DeleteChain} {
		for chains := range slices.Chunk(r.chains, chainsAtOnce) {
			b := &nft.Batch{}
			for _, chain := range chains {
				step(b, t, chain)
			}
			if err := conn.Commit(ctx, b); err != nil {
				return fmt.Errorf("remove chains: %w", err)
			}
		}
	}
	return nil
}
