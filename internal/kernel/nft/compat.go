//go:build linux

package nft

import (
	"bytes"
	"context"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// This file supports tables of other programs, as far as one must understand them, and those of
// iptables-nft: tables of nftables whose rules consist of extensions of iptables.

// Target runs a target of iptables. Info is its data as in the kernel's headers
// (linux/netfilter/xt_*.h).
func (e Exprs) Target(name string, revision uint32, info []byte) Exprs {
	return e.then(`xt target "`+name+`"`, func(a attrs) attrs {
		return a.expr("target", func(a attrs) attrs {
			a = a.text(unix.NFTA_TARGET_NAME, name).u32(unix.NFTA_TARGET_REV, revision)
			return a.bytes(unix.NFTA_TARGET_INFO, info)
		})
	})
}

// Expr is an expression of a rule that another program made.
type Expr struct {
	Kind string // "match", "target", "immediate", "counter" and so on
	// Name, Revision and Info are those of the extension, of kinds match and
	// target.
	Name     string
	Revision uint32
	Info     []byte
	// Verdict is that of kind immediate, nil if it has none.
	Verdict *Verdict
	// Key is what kinds ct and meta load (unix.NFT_CT_... and unix.NFT_META_...), if Loads
	// is set; otherwise they set something.
	Key   uint32
	Loads bool
	// Base, Offset and Len say which bytes of the packet kind payload loads
	// (unix.NFT_PAYLOAD_...).
	Base, Offset, Len uint32
	// Mask is what kind bitwise keeps; nil if it does more than that.
	Mask []byte
	// Op and Data are what kind cmp compares with (unix.NFT_CMP_...). Kind range has the
	// same Op, and is from Data to Last.
	Op         uint32
	Data, Last []byte
	// Set is what kind lookup looks in, a map of verdicts if Decides is set, and Inverted that
	// the packet must not be in it.
	Set               string
	Decides, Inverted bool
	Packets           uint64 // of kind counter
}

// Expressions reads the rules of a chain of any program.
func (c *Conn) Expressions(ctx context.Context, t Table, chain string) ([][]Expr, error) {
	what := t.in("the rules of chain " + chain + " in")
	return listRules(ctx, c, t, chain, what, func(a attrs) (rule []Expr, _ bool) {
		for _, e := range nfnetlink.Attrs(a.get(unix.NFTA_RULE_EXPRESSIONS)) {
			rule = append(rule, parseExpr(e))
		}
		return rule, true
	})
}

// Counters reads what the rules of a table counted, by chain and in their order; 0 for those that do not count.
func (c *Conn) Counters(ctx context.Context, t Table) (map[string][]uint64, error) {
	out := map[string][]uint64{}
	_, err := listRules(ctx, c, t, "", t.in("the rules of"), func(a attrs) (_ struct{}, keep bool) {
		packets := uint64(0)
		for _, e := range nfnetlink.Attrs(a.get(unix.NFTA_RULE_EXPRESSIONS)) {
			packets += parseExpr(e).Packets
		}
		chain := a.getText(unix.NFTA_RULE_CHAIN)
		out[chain] = append(out[chain], packets)
		return struct{}{}, false
	})
	return out, err
}

func parseExpr(b attrs) Expr {
	e, data := Expr{Kind: b.getText(unix.NFTA_EXPR_NAME)}, b.get(unix.NFTA_EXPR_DATA)
	switch e.Kind {
	case "match", "target": // with the same numbers for their attributes
		e.Name, e.Revision = data.getText(unix.NFTA_TARGET_NAME), data.getU32(unix.NFTA_TARGET_REV)
		e.Info = bytes.Clone(data.get(unix.NFTA_TARGET_INFO))
	case "ct", "meta": // likewise
		e.Key, e.Loads = data.getU32(unix.NFTA_META_KEY), data.get(unix.NFTA_META_DREG) != nil
	case "payload":
		e.Loads = data.get(unix.NFTA_PAYLOAD_DREG) != nil
		e.Base, e.Offset, e.Len = data.getU32(unix.NFTA_PAYLOAD_BASE), data.getU32(unix.NFTA_PAYLOAD_OFFSET), data.getU32(unix.NFTA_PAYLOAD_LEN)
	case "bitwise": // (value & mask) ^ xor
		if xor := parseValue(data.get(unix.NFTA_BITWISE_XOR)); len(bytes.Trim(xor, "\x00")) == 0 {
			e.Mask = bytes.Clone(parseValue(data.get(unix.NFTA_BITWISE_MASK)))
		}
	case "cmp":
		e.Op, e.Data = data.getU32(unix.NFTA_CMP_OP), bytes.Clone(parseValue(data.get(unix.NFTA_CMP_DATA)))
	case "range":
		e.Op, e.Data = data.getU32(unix.NFTA_RANGE_OP), bytes.Clone(parseValue(data.get(unix.NFTA_RANGE_FROM_DATA)))
		e.Last = bytes.Clone(parseValue(data.get(unix.NFTA_RANGE_TO_DATA)))
	case "lookup":
		to := data.get(unix.NFTA_LOOKUP_DREG)
		e.Set, e.Decides = data.getText(unix.NFTA_LOOKUP_SET), to != nil && toU32(to) == unix.NFT_REG_VERDICT
		e.Inverted = data.getU32(unix.NFTA_LOOKUP_FLAGS)&unix.NFT_LOOKUP_F_INV != 0
	case "immediate":
		if verdict := new(Verdict); parseVerdict(data.get(unix.NFTA_IMMEDIATE_DATA), verdict) {
			e.Verdict = verdict
		}
	case "counter":
		e.Packets = data.getU64(unix.NFTA_COUNTER_PACKETS)
	}
	return e
}
