package leftovers

import (
	"context"
	"errors"
	"slices"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"sluice/internal/nft"
)

// nftablesTable is the table that kube-proxy has in nftables mode, for each
// family.
const nftablesTable = "kube-proxy"

// tablesOf are the names of a family's tables: none where the kernel has no
// nftables.
func tablesOf(ctx context.Context, conn *nft.Conn, family nft.Family) ([]string, error) {
	names, err := conn.Tables(ctx, family)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	return names, err
}

// removeTables removes the tables of nftables mode, both at one stroke.
func removeTables(ctx context.Context, log logr.Logger, conn *nft.Conn) error {
	b := &nft.Batch{}
	for _, family := range families {
		present, err := tablesOf(ctx, conn, family)
		if err != nil {
			return err
		}
		if slices.Contains(present, nftablesTable) {
			b.DeleteTable(nft.Table{Family: family, Name: nftablesTable})
		}
	}
	if b.Empty() {
		return nil
	}
	err := conn.Commit(ctx, b)
	if errors.Is(err, unix.ENOENT) {
		return removeTables(ctx, log, conn) // somebody else was faster with one of them
	}
	if err == nil {
		log.Info("Removed the tables of an earlier kube-proxy", "kind", "nftables", "table", nftablesTable)
	}
	return err
}
