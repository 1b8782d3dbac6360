package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/nft"
)

// upstreamTable is the table of upstream's kube-proxy in nftables mode, in each
// family.
const upstreamTable = "kube-proxy"

// Remove removes the tables of nftables mode, upstream's and, unless o.Running uses
// them, ours.
func Remove(ctx context.Context, o dataplane.RemoveOptions) (err error) {
	names := []string{upstreamTable}
	if _, running := o.Running.(interface{ keepsTables() }); !running {
		names = append(names, tableNames[:]...)
	}
	conn, err := nft.Dial(0, nft.SendBuffer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	removed, err := removeTables(ctx, conn, names, nft.IP, nft.IP6)
	if removed {
		o.Logger.Info("Removed the tables of an earlier kube-proxy", "kind", "nftables")
	}
	return err
}

// removeTables removes tables atomically, and reports whether there were any.
func removeTables(ctx context.Context, conn *nft.Conn, names []string, families ...nft.Family) (removed bool, err error) {
	b := &nft.Batch{}
	for _, family := range families {
		present, err := conn.TableNames(ctx, family)
		if err != nil {
			return false, err
		}
		for _, name := range present {
			if slices.Contains(names, name) {
				b.DeleteTable(nft.Table{Family: family, Name: name})
			}
		}
	}
	if b.Empty() {
		return false, nil
	}
	err = conn.Commit(ctx, b)
	if errors.Is(err, unix.ENOENT) {
		return removeTables(ctx, conn, names, families...) // another process removed one of them
	}
	if err != nil {
		return false, fmt.Errorf("removing nftables tables: %w", err)
	}
	return true, nil
}
