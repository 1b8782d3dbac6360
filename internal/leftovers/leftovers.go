package leftovers

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"

	"sluice/internal/nft"
)

// Options is what Remove needs.
type Options struct {
	Logger logr.Logger
	// What is in use is not left over: the mode that the caller runs in keeps
	// its things, if it goes by upstream's names. IPVS mode needs its iptables
	// rules too.
	KeepIPTables, KeepIPVS, KeepNFTables bool
}

// Remove removes what kube-proxy left behind. The error tells everything that
// is still there; all else is gone.
func Remove(ctx context.Context, o Options) (err error) {
	conn, err := nft.Dial(0)
	if err != nil {
		return fmt.Errorf("remove what an earlier kube-proxy left behind: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	// The order matters: iptables rules refer to the sets of IPVS mode.
	var errs []error
	if !o.KeepIPTables {
		errs = append(errs, removeCompat(ctx, o.Logger, conn), removeLegacy(ctx, o.Logger))
	}
	if !o.KeepIPVS {
		errs = append(errs, removeIPVS(ctx, o.Logger))
	}
	if !o.KeepNFTables {
		errs = append(errs, removeTables(ctx, o.Logger, conn))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what an earlier kube-proxy left behind: %w", err)
	}
	return nil
}
