//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
)

// upstreamTable is the table of upstream's kube-proxy in nftables mode, in each
// family.
const upstreamTable = "kube-proxy"

// Remove removes the tables of nftables mode: upstream's, unless o.OwnOnly, and, unless
// o.Running uses them, ours. Of a named proxy it removes those of this name alone, and of all named ones if no
// proxy is to be left. Other modes that have tables of this one hand no packets to other nodes, and have no flow
// tables.
func Remove(ctx context.Context, o dataplane.RemoveOptions) (err error) {
	var names []string
	if !o.OwnOnly && o.Instance == "" {
		names = append(names, upstreamTable)
	}
	if _, running := o.Running.(interface{ keepsTables() }); !running {
		own := tableNamesOf(o.Instance)
		names = append(append(names, own[:]...), witnessTableOf(o.Instance), loopbackTableOf(o.Instance))
	}
	if _, running := o.Running.(*Dataplane); !running {
		names = append(names, directTableOf(o.Instance), flowTableOf(o.Instance))
	}
	conn, err := nft.Dial(0, nft.SendBuffer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if !o.OwnOnly && o.Instance == "" && o.Running == nil {
		if names, err = withNamed(ctx, conn, names); err != nil {
			return err
		}
	}
	removed, err := removeTables(ctx, conn, names, directFamilies...)
	if removed != nil {
		o.Logger.Info("Removed nftables tables of a kube-proxy", "tables", removed)
	}
	return err
}

// withNamed adds to names of our tables those that named proxies have in their place.
func withNamed(ctx context.Context, conn *nft.Conn, names []string) ([]string, error) {
	all := slices.Clone(names)
	for _, family := range directFamilies {
		present, err := conn.TableNames(ctx, family)
		if err != nil {
			return nil, err
		}
		for _, table := range present {
			base, _, named := strings.Cut(table, ".")
			if named && base != upstreamTable && slices.Contains(names, base) {
				all = append(all, table)
			}
		}
	}
	return all, nil
}

// removeTables removes tables atomically, and returns the names of those that there were.
func removeTables(ctx context.Context, conn *nft.Conn, names []string, families ...nft.Family) (removed []string, err error) {
	b := &nft.Batch{}
	for _, family := range families {
		present, err := conn.TableNames(ctx, family)
		if err != nil {
			return nil, err
		}
		for _, name := range present {
			if slices.Contains(names, name) {
				b.DeleteTable(nft.Table{Family: family, Name: name})
				removed = append(removed, fmt.Sprintf("%s %s", family, name))
			}
		}
	}
	if b.Empty() {
		return nil, nil
	}
	err = conn.Commit(ctx, b)
	if errors.Is(err, unix.ENOENT) {
		return removeTables(ctx, conn, names, families...) // another process removed one of them
	}
	if err != nil {
		return nil, fmt.Errorf("removing nftables tables: %w", err)
	}
	return removed, nil
}
