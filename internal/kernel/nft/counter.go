package nft

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// RuleCounters reads the packet counters of a chain's rules, in order; 0 is that of a
// rule without one.
func (c *Conn) RuleCounters(ctx context.Context, t Table, chain string) ([]uint64, error) {
	var counts []uint64
	filter := attrs(nil).text(unix.NFTA_RULE_TABLE, t.Name).text(unix.NFTA_RULE_CHAIN, chain)
	err := c.dump(ctx, t.Family, unix.NFT_MSG_GETRULE, filter, func(a attrs) error {
		var packets uint64
		for typ, v := range nfnetlink.Attrs(a) {
			if typ == unix.NFTA_RULE_EXPRESSIONS {
				packets = parseCounters(v)
			}
		}
		counts = append(counts, packets)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the counters of chain %s in table %s %s: %w", chain, t.Family, t.Name, err)
	}
	return counts, nil
}

// parseCounters returns the sum of a rule's packet counters.
func parseCounters(exprs []byte) (sum uint64) {
	for _, expr := range nfnetlink.Attrs(exprs) {
		for typ, v := range nfnetlink.Attrs(expr) {
			if typ == unix.NFTA_EXPR_NAME && toText(v) == "counter" {
				packets, _ := parseCounter(expr)
				sum += packets
			}
		}
	}
	return sum
}
