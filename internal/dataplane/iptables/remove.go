package iptables

import (
	"context"
	"errors"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
)

// Remove removes the chains of iptables mode, ours and upstream's, in both variants
// and families. With them it removes those of upstream's IPVS mode, since the ones
// lead into the others. The chains of iptables mode stay in the variant that
// o.Running uses. With o.OwnOnly only those are removed that upstream has not; it writes
// its own rules into the others, after which none leads into ours.
func Remove(ctx context.Context, o dataplane.RemoveOptions) error {
	var errs []error
	for _, v := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
		chains := iptables.IPVSChains
		switch {
		case o.OwnOnly:
			chains = ownChains
		case !inUse(o.Running, v):
			chains = allChains
		}
		if o.KeepMark {
			chains = chains.Without(markChain)
		}
		errs = append(errs, iptables.RemoveChains(ctx, iptables.RemoveOptions{
			Logger: o.Logger, Variant: v, Families: model.Families[:], Chains: chains,
		}))
	}
	return errors.Join(errs...)
}

// inUse reports whether a dataplane has chains in a variant of iptables.
func inUse(running dataplane.Dataplane, v iptables.Variant) bool {
	d, ok := running.(*Dataplane)
	return ok && (d.Variant() == v || d.Variant() == iptables.AutoVariant)
}
