package coexist

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/iptables"
	"sluice/internal/model"
	"sluice/internal/nft"
	"sluice/internal/xtables"
)

const forwardChain = "FORWARD"

// forwardPolicies finds policies of chain FORWARD that drop connections to Services.
func forwardPolicies(ctx context.Context, conn *nft.Conn) (found []model.Problem, err error) {
	var errs []error
	for _, f := range model.Families {
		drops, err := nftDrops(ctx, conn, nft.Table{Family: iptables.NFTFamily(f), Name: iptables.Filter})
		errs = append(errs, err)
		if drops {
			found = append(found, forwardProblem(iptables.Command(f)+"-nft"))
		}
		tables, err := iptables.LegacyFamily(f).ReadAll(iptables.Filter)
		errs = append(errs, err)
		if t := tables[iptables.Filter]; t != nil && legacyDrops(t) {
			found = append(found, forwardProblem(iptables.Command(f)+"-legacy"))
		}
	}
	return found, errors.Join(errs...)
}

func forwardProblem(command string) model.Problem {
	return model.Problem{
		Object: command, Field: "table " + iptables.Filter + ", chain " + forwardChain,
		Reason: "its policy is DROP. In this mode no rule there lets connections to Services pass, as KUBE-FORWARD of iptables mode does: those that the node forwards time out, unless another rule accepts them",
		Remedy: "run " + command + " -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT, and make it permanent; or set mode: iptables",
	}
}

// nftDrops reports whether FORWARD of iptables-nft drops translated connections.
func nftDrops(ctx context.Context, conn *nft.Conn, t nft.Table) (bool, error) {
	chains, err := nftChains(ctx, conn, t)
	if err != nil || !slices.ContainsFunc(chains, func(c nft.Chain) bool { return c.Name == forwardChain && c.Drops }) {
		return false, err
	}
	rules, err := conn.Expressions(ctx, t, forwardChain)
	return !slices.ContainsFunc(rules, nftAccepts), err
}

// nftAccepts reports whether a rule accepts all translated connections.
func nftAccepts(rule []nft.Expr) bool {
	accepts := false
	for _, e := range rule {
		switch e.Kind {
		case "counter":
		case "match":
			if !matchesTranslated(e.Name, e.Info) {
				return false
			}
		case "immediate":
			accepts = e.Verdict != nil && e.Verdict.Code == nft.AcceptCode
		default:
			return false
		}
	}
	return accepts
}

func legacyDrops(t *xtables.Table) bool {
	return t.Builtin[forwardChain] && !slices.ContainsFunc(t.Rules, func(r xtables.Rule) bool {
		narrow := func(m xtables.Extension) bool { return !matchesTranslated(m.Name, m.Info) }
		return r.Chain == forwardChain && r.Accepts && r.AnyPacket && !slices.ContainsFunc(r.Matches, narrow)
	})
}

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

// struct xt_conntrack_mtinfo3 of linux/netfilter/xt_conntrack.h.
const (
	conntrackFlagsAt  = 146 // what is matched
	conntrackInvertAt = 148 // what of it is inverted
	conntrackStateAt  = 150
	conntrackState    = 1 << 0 // a flag
	conntrackDNAT     = 1 << 7 // a state
)

// matchesTranslated reports whether a match is true for all translated connections.
func matchesTranslated(name string, info []byte) bool {
	at := func(offset int) uint16 { return binary.NativeEndian.Uint16(info[offset:]) }
	switch {
	case name == "comment":
		return true
	case name != "conntrack" || len(info) < conntrackStateAt+2:
		return false
	}
	return at(conntrackFlagsAt) == conntrackState && at(conntrackInvertAt) == 0 && at(conntrackStateAt)&conntrackDNAT != 0
}
