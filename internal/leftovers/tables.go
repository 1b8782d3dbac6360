package leftovers

import (
	"context"
	"errors"
	"slices"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"sluice/internal/nft"
)

// upstreamTable is the table that upstream's kube-proxy has in nftables mode, for
// each family.
const upstreamTable = "kube-proxy"

// tablesOf are the names of a family's tables: none where the kernel has no
// nftables.
func tablesOf(ctx context.Context, conn *nft.Conn, family nft.Family) (names []string, err error) {
	tables, err := conn.Tables(ctx, family)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	for _, t := range tables {
		names = append(names, t.Name)
	}
	return names, err
}

// removeTables removes tables of nftables mode, all at one stroke.
func removeTables(ctx context.Context, log logr.Logger, conn *nft.Conn, names []string) error {
	b := &nft.Batch{}
	for _, family := range families {
		present, err := tablesOf(ctx, conn, family)
		if err != nil {
			return err
		}
		for _, name := range present {
			if slices.Contains(names, name) {
				b.DeleteTable(nft.Table{Family: family, Name: name})
			}
		}
	}
	if b.Empty() {
		return nil
	}
	err := conn.Commit(ctx, b)
	if errors.Is(err, unix.ENOENT) {
		return removeTables(ctx, log, conn, names) // somebody else was faster with one of them
	}
	if err == nil {
		log.Info("Removed the tables of an earlier kube-proxy", "kind", "nftables")
	}
	return err
}
