package nft

import (
	"context"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// Jump is a rule that leads into another chain, by jump or goto.
type Jump struct {
	Chain  string // that the rule is in
	Handle uint64
	Target string
}

// Jumps reads those rules of a table of any program that lead into another chain.
func (c *Conn) Jumps(ctx context.Context, t Table) ([]Jump, error) {
	return listRules(ctx, c, t, "", t.in("the jumps of"), func(a attrs) (Jump, bool) {
		target := parseTarget(a.get(unix.NFTA_RULE_EXPRESSIONS))
		return Jump{a.getText(unix.NFTA_RULE_CHAIN), a.getU64(unix.NFTA_RULE_HANDLE), target}, target != ""
	})
}

// parseTarget returns the chain that the expressions lead into, or "".
func parseTarget(exprs []byte) string {
	for _, expr := range nfnetlink.Attrs(exprs) {
		if e := parseExpr(expr); e.Verdict != nil {
			return e.Verdict.Chain
		}
	}
	return ""
}

// DeleteRule removes one rule.
func (b *Batch) DeleteRule(t Table, chain string, handle uint64) {
	b.message(t, unix.NFT_MSG_DELRULE, 0, 0, func(a attrs) attrs {
		a = a.text(unix.NFTA_RULE_TABLE, t.Name).text(unix.NFTA_RULE_CHAIN, chain)
		return a.u64(unix.NFTA_RULE_HANDLE, handle)
	})
}
