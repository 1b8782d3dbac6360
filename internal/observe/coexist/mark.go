//go:build linux

package coexist

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
	"sluice/internal/model"
)

const (
	markTarget   = "MARK"
	markRevision = 2
)

// markInfo is struct xt_mark_tginfo2: the bits to set, and those to clear before.
func markInfo(mark uint32) []byte {
	return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, mark), mark)
}

// keepMark makes KUBE-MARK-MASQ mark packets for masquerading, wherever iptables has a
// table nat. The problems are those tables where it cannot.
func keepMark(ctx context.Context, conn *nft.Conn, log logr.Logger, mark uint32) (found []model.Problem, err error) {
	if mark == 0 {
		return nil, nil
	}
	var errs []error
	for _, f := range model.Families {
		err := keepNFTMark(ctx, conn, log, nft.Table{Family: iptables.NFTFamily(f), Name: iptables.NAT}, mark)
		if errors.Is(err, nft.ErrInterrupted) {
			errs = append(errs, err)
		} else if err != nil {
			found = append(found, markProblem(iptables.Command(f)+"-nft", err, "load the kernel's module nft_compat"))
		}
		tables, err := iptables.LegacyFamily(f).ReadAll(iptables.NAT)
		errs = append(errs, err)
		if t := tables[iptables.NAT]; t != nil {
			if err := keepLegacyMark(ctx, log, f, t, mark); err != nil {
				found = append(found, markProblem(iptables.Command(f)+"-legacy", err, needsOfLegacy))
			}
		}
	}
	return found, errors.Join(errs...)
}

// needsOfLegacy are the requirements of writing to tables of iptables-legacy.
const needsOfLegacy = "give the container the capability NET_RAW, the file /run/xtables.lock of the node and an image with iptables"

func markProblem(command string, err error, remedy string) model.Problem {
	return model.Problem{
		Object: model.Object{Kind: command}, Field: "table " + iptables.NAT + ", chain " + iptables.MarkChain,
		Reason: fmt.Sprintf("network plugins jump to it to have packets masqueraded, and it cannot be kept: %v", err),
		Remedy: remedy + ", or set mode: iptables",
	}
}

func keepNFTMark(ctx context.Context, conn *nft.Conn, log logr.Logger, t nft.Table, mark uint32) error {
	chains, err := nftChains(ctx, conn, t)
	if err != nil || len(chains) == 0 {
		return err
	}
	if slices.ContainsFunc(chains, func(c nft.Chain) bool { return c.Name == iptables.MarkChain }) {
		rules, err := conn.Expressions(ctx, t, iptables.MarkChain)
		if err != nil || nftMarks(rules, mark) {
			return err
		}
	}
	b := &nft.Batch{}
	b.AddChain(t, nft.Chain{Name: iptables.MarkChain})
	b.FlushChain(t, iptables.MarkChain)
	// As iptables-nft writes it, so that iptables-nft can still parse its table.
	b.AddRule(t, nft.Rule{Chain: iptables.MarkChain, Exprs: nft.Exprs{}.Count().Target(markTarget, markRevision, markInfo(mark))})
	if err := conn.Commit(ctx, b); err != nil {
		return err
	}
	logKept(log, "iptables-nft", t.Family.String())
	return nil
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

// nftMarks reports whether a chain does nothing but mark packets.
func nftMarks(rules [][]nft.Expr, mark uint32) bool {
	if len(rules) != 1 {
		return false
	}
	marks := false
	for _, e := range rules[0] {
		switch {
		case e.Kind == "counter":
		case e.Kind == "target" && e.Name == markTarget && e.Revision == markRevision && bytes.Equal(e.Info, markInfo(mark)):
			marks = true
		default:
			return false
		}
	}
	return marks
}

// keepLegacyMark does the same for iptables-legacy. If it cannot be written, a missing
// chain is only logged: no rule leads into it yet.
func keepLegacyMark(ctx context.Context, log logr.Logger, f model.Family, t *xtables.Table, mark uint32) error {
	there := slices.Contains(t.Chains, iptables.MarkChain)
	if there && legacyMarks(t, mark) {
		return nil
	}
	rules := fmt.Sprintf("*%s\n:%s - [0:0]\n-A %s -j MARK --set-xmark %#x/%#x\nCOMMIT\n",
		iptables.NAT, iptables.MarkChain, iptables.MarkChain, mark, mark)
	commands, err := iptables.Find(ctx, iptables.Legacy, 0)
	if err == nil {
		err = commands.Restore(ctx, f, strings.NewReader(rules))
	}
	switch {
	case err == nil:
		logKept(log, "iptables-legacy", iptables.NFTFamily(f).String())
	case !there:
		log.V(1).Info("Cannot make "+iptables.MarkChain, "kind", "iptables-legacy", "family", iptables.NFTFamily(f).String(), "reason", err.Error(), "remedy", needsOfLegacy)
		return nil
	}
	return err
}

func legacyMarks(t *xtables.Table, mark uint32) bool {
	var rules []xtables.Rule
	for _, r := range t.Rules {
		if r.Chain == iptables.MarkChain {
			rules = append(rules, r)
		}
	}
	if len(rules) != 1 || !rules[0].AnyPacket || len(rules[0].Matches) > 0 {
		return false
	}
	target := rules[0].Target
	return target.Name == markTarget && target.Revision == markRevision && bytes.Equal(target.Info, markInfo(mark))
}

func logKept(log logr.Logger, kind, family string) {
	log.Info("Made "+iptables.MarkChain+", to which other programs jump to have packets masqueraded", "kind", kind, "family", family, "table", iptables.NAT)
}
