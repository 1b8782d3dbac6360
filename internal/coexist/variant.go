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

// family is one IP family in the words of all who know it.
type family struct {
	model  model.Family
	nft    nft.Family
	legacy *xtables.Family
}

var families = []family{{model.IPv4, nft.IP, xtables.IPv4}, {model.IPv6, nft.IP6, xtables.IPv6}}

// builtin are the names that iptables gives to the chains of hooks. Who uses
// nftables by itself names them otherwise.
var builtin = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// compatChains are the chains of a table that iptables-nft keeps; none if it is
// not there, or somebody else's.
func compatChains(ctx context.Context, conn *nft.Conn, t nft.Table) ([]nft.Chain, error) {
	chains, err := conn.Chains(ctx, t)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // a kernel without nftables for the family
	}
	if slices.ContainsFunc(chains, func(c nft.Chain) bool { return c.Type != "" && !slices.Contains(builtin, c.Name) }) {
		return nil, err
	}
	return chains, err
}
