//go:build linux

package leftovers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/nft"
	"sluice/internal/mode"
)

// Remove removes what other modes of this proxy, and upstream's kube-proxy, left
// behind, or what a named proxy did. The error names everything that is still there; all else is gone.
func Remove(ctx context.Context, o dataplane.RemoveOptions) error {
	var errs []error
	for _, m := range mode.All {
		if m.Remove != nil && (o.Instance == "" || m.Named) {
			errs = append(errs, m.Remove(ctx, o))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what an earlier kube-proxy left behind: %w", err)
	}
	return nil
}

// Uses finds the chains that Remove has to leave because others lead into them. It
// leaves out KUBE-MARK-MASQ, which works without a kube-proxy in iptables mode.
func Uses(ctx context.Context, conn *nft.Conn) (all []iptables.Use, err error) {
	for _, m := range mode.All {
		if m.Chains.Has == nil {
			continue
		}
		uses, uerr := iptables.Uses(ctx, conn, iptables.Chains(m.Chains).Without(iptables.MarkChain))
		all, err = append(all, uses...), errors.Join(err, uerr)
	}
	return all, err
}

// Has reports whether a chain of iptables is one that Remove removes.
func Has(chain string) bool {
	return slices.ContainsFunc(mode.All, func(m dataplane.Mode) bool { return m.Chains.Has != nil && m.Chains.Has(chain) })
}
