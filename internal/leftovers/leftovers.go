package leftovers

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane/nftables"
	driver "sluice/internal/iptables"
	"sluice/internal/nft"
)

// Kinds is a set of kinds of things that a kube-proxy keeps in the kernel.
type Kinds uint8

// The kinds.
const (
	IPTablesNFT    Kinds = 1 << iota // chains, made by iptables-nft
	IPTablesLegacy                   // chains, made by iptables-legacy
	IPVS                             // of IPVS mode, with its chains
	Upstream                         // tables of upstream's nftables mode
	Own                              // tables of our own nftables mode
)

// Options is what Remove needs.
type Options struct {
	Logger logr.Logger
	// Keep is what the caller uses, and so is not left over.
	Keep Kinds
	// KeepMark leaves KUBE-MARK-MASQ alone, in any variant: the caller looks
	// after it.
	KeepMark bool
}

func (o *Options) keeps(k Kinds) bool { return o.Keep&k != 0 }

// Remove removes what other modes of this proxy, and upstream's kube-proxy, left
// behind. The error tells everything that is still there; all else is gone.
func Remove(ctx context.Context, o Options) (err error) {
	conn, err := nft.Dial(0, nft.SendBuffer)
	if err != nil {
		return fmt.Errorf("remove what an earlier kube-proxy left behind: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var tables []string
	if !o.keeps(Upstream) {
		tables = append(tables, upstreamTable)
	}
	if !o.keeps(Own) {
		tables = append(tables, nftables.TableNames()...)
	}
	// The order matters: iptables rules refer to the sets of IPVS mode.
	errs := []error{
		removeCompat(ctx, o.Logger, conn, o.chains(IPTablesNFT)),
		removeLegacy(ctx, o.Logger, o.chains(IPTablesLegacy)),
	}
	if !o.keeps(IPVS) {
		errs = append(errs, removeIPVS(ctx, o.Logger))
	}
	errs = append(errs, removeTables(ctx, o.Logger, conn, tables))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what an earlier kube-proxy left behind: %w", err)
	}
	return nil
}

// chains says which chains of a variant of iptables are left over. Where the
// variant is in use, those of IPVS mode still may be.
func (o *Options) chains(variant Kinds) chainNames {
	out := noChains
	if !o.keeps(variant) {
		out = out.and(proxyChains)
	}
	if !o.keeps(IPVS) {
		out = out.and(ipvsChains)
	}
	if o.KeepMark {
		out = out.without(driver.MarkChain)
	}
	return out
}
