package nft

import (
	"context"
	"fmt"

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
	var jumps []Jump
	filter := attrs(nil).text(unix.NFTA_RULE_TABLE, t.Name)
	err := c.dump(ctx, t.Family, unix.NFT_MSG_GETRULE, filter, func(a attrs) error {
		var j Jump
		for typ, v := range nfnetlink.Attrs(a) {
			switch typ {
			case unix.NFTA_RULE_CHAIN:
				j.Chain = toText(v)
			case unix.NFTA_RULE_HANDLE:
				j.Handle = toU64(v)
			case unix.NFTA_RULE_EXPRESSIONS:
				j.Target = parseTarget(v)
			}
		}
		if j.Target != "" {
			jumps = append(jumps, j)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the jumps of table %s %s: %w", t.Family, t.Name, err)
	}
	return jumps, nil
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
