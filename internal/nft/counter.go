package nft

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/internal/nfnetlink"
)

// RuleCounters reads the packets that the rules of a chain have counted, in the
// order of the rules; 0 for a rule that does not count.
func (c *Conn) RuleCounters(ctx context.Context, t Table, chain string) ([]uint64, error) {
	var counts []uint64
	filter := Attrs(nil).text(unix.NFTA_RULE_TABLE, t.Name).text(unix.NFTA_RULE_CHAIN, chain)
	err := c.request(ctx, t.Family, unix.NFT_MSG_GETRULE, dump, filter, func(a Attrs) error {
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

// parseCounters adds up the packets of a rule's counters.
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
