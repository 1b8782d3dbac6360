package coexist

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/nft"
	"sluice/internal/xtables"
)

// family is one IP family in each mechanism.
type family struct {
	model  model.Family
	nft    nft.Family
	legacy *xtables.Family
}

var families = []family{{model.IPv4, nft.IP, xtables.IPv4}, {model.IPv6, nft.IP6, xtables.IPv6}}

// nftChains returns the chains of a table of iptables-nft; none if it does not exist. A
// table with other base chains than iptables' belongs to a user of nftables.
func nftChains(ctx context.Context, conn *nft.Conn, t nft.Table) ([]nft.Chain, error) {
	chains, err := conn.Chains(ctx, t)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // a kernel without nftables for the family
	}
	if slices.ContainsFunc(chains, func(c nft.Chain) bool { return c.Type != "" && !slices.Contains(xtables.BuiltinChains[:], c.Name) }) {
		return nil, err
	}
	return chains, err
}
