package iptables

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns"
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
