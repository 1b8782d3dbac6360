package nft

import (
	"bytes"
	"context"
	"fmt"

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
	// Mask is what kind bitwise keeps; nil if it does more than that.
	Mask []byte
	// Op and Data are what kind cmp compares with (unix.NFT_CMP_...).
	Op   uint32
	Data []byte
	// Set is what kind lookup looks in, a map of verdicts if Decides is set, and Inverted that
	// the packet must not be in it.
	Set               string
	Decides, Inverted bool
}

// Expressions reads the rules of a chain of any program.
func (c *Conn) Expressions(ctx context.Context, t Table, chain string) (rules [][]Expr, err error) {
	filter := attrs(nil).text(unix.NFTA_RULE_TABLE, t.Name).text(unix.NFTA_RULE_CHAIN, chain)
	err = c.dump(ctx, t.Family, unix.NFT_MSG_GETRULE, filter, func(a attrs) error {
		var rule []Expr
		for typ, v := range nfnetlink.Attrs(a) {
			if typ != unix.NFTA_RULE_EXPRESSIONS {
				continue
			}
			for _, e := range nfnetlink.Attrs(v) {
				rule = append(rule, parseExpr(e))
			}
		}
		rules = append(rules, rule)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the rules of chain %s in table %s %s: %w", chain, t.Family, t.Name, err)
	}
	return rules, nil
}

func parseExpr(b []byte) (e Expr) {
	var data []byte
	for typ, v := range nfnetlink.Attrs(b) {
		switch typ {
		case unix.NFTA_EXPR_NAME:
			e.Kind = toText(v)
		case unix.NFTA_EXPR_DATA:
			data = v
		}
	}
	for typ, v := range nfnetlink.Attrs(data) {
		switch e.Kind {
		case "match", "target": // with the same numbers for their attributes
			e.takeExtension(typ, v)
		case "ct", "meta": // likewise
			switch typ {
			case unix.NFTA_META_KEY:
				e.Key = toU32(v)
			case unix.NFTA_META_DREG:
				e.Loads = true
			}
		case "bitwise":
			e.takeBitwise(typ, v)
		case "cmp":
			switch typ {
			case unix.NFTA_CMP_OP:
				e.Op = toU32(v)
			case unix.NFTA_CMP_DATA:
				e.Data = bytes.Clone(parseValue(v))
			}
		case "lookup":
			switch typ {
			case unix.NFTA_LOOKUP_SET:
				e.Set = toText(v)
			case unix.NFTA_LOOKUP_DREG:
				e.Decides = toU32(v) == unix.NFT_REG_VERDICT
			case unix.NFTA_LOOKUP_FLAGS:
				e.Inverted = toU32(v)&unix.NFT_LOOKUP_F_INV != 0
			}
		case "immediate":
			var verdict Verdict
			if typ == unix.NFTA_IMMEDIATE_DATA && parseVerdict(v, &verdict) {
				e.Verdict = &verdict
			}
		}
	}
	return e
}

// takeBitwise keeps the mask of (value & mask) ^ 0.
func (e *Expr) takeBitwise(typ uint16, v []byte) {
	switch typ {
	case unix.NFTA_BITWISE_MASK:
		e.Mask = bytes.Clone(parseValue(v))
	case unix.NFTA_BITWISE_XOR:
		if len(bytes.Trim(parseValue(v), "\x00")) > 0 {
			e.Mask = nil // which comes before
		}
	}
}

func (e *Expr) takeExtension(typ uint16, v []byte) {
	switch typ {
	case unix.NFTA_TARGET_NAME:
		e.Name = toText(v)
	case unix.NFTA_TARGET_REV:
		e.Revision = toU32(v)
	case unix.NFTA_TARGET_INFO:
		e.Info = append([]byte(nil), v...)
	}
}
