package nodeproblem

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
	"sluice/internal/model"
)

// reader reads the base chains of all programs, in nftables and in legacy iptables.
type reader struct {
	// ours reports whether a chain of iptables is kube-proxy's. Rules in base chains that lead
	// there decide nothing about connections to endpoints, except that ForwardChain accepts
	// some if accepts is set.
	ours    func(chain string) bool
	accepts bool
}

// attempts is how often tables are read again because others changed them meanwhile.
const attempts = 5

// nftables reads those of nftables, also those that iptables-nft has there.
func (r *reader) nftables(ctx context.Context, conn *nft.Conn) (all []chain, err error) {
	for range attempts {
		all, err = nil, nil
		for _, family := range []nft.Family{nft.IP, nft.IP6, nft.INet} {
			some, ferr := r.nftFamily(ctx, conn, family)
			all, err = append(all, some...), errors.Join(err, ferr)
		}
		if !errors.Is(err, nft.ErrInterrupted) {
			break
		}
	}
	return all, err
}

func (r *reader) nftFamily(ctx context.Context, conn *nft.Conn, family nft.Family) (all []chain, err error) {
	tables, err := conn.Tables(ctx, family)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || err == nil && len(tables) == 0 {
		return nil, nil // a kernel without nftables for the family, or nothing in it
	}
	if err != nil {
		return nil, err
	}
	base, err := conn.BaseChains(ctx, family)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.Dormant {
			continue
		}
		for _, ch := range base[t.Name] {
			if h := hook(ch.Hook); h != input && h != forward && h != output {
				continue
			}
			rules, err := conn.Expressions(ctx, t, ch.Name)
			if errors.Is(err, unix.ENOENT) { // it is gone
				continue
			}
			if err != nil {
				return all, err
			}
			c := describe(t, base[t.Name], ch)
			for _, exprs := range rules {
				c.rules = append(c.rules, r.nftRules(ctx, conn, t, exprs)...)
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// describe returns a chain of nftables without its rules. A table whose base chains all have
// the names of iptables' is one of iptables-nft.
func describe(t nft.Table, base []nft.Chain, ch nft.Chain) chain {
	c := chain{
		command: "nft", table: t.Family.String() + " " + t.Name, name: ch.Name, hook: hook(ch.Hook), priority: ch.Priority, drops: ch.Drops,
	}
	for _, f := range model.Families {
		if t.Family == nft.INet || t.Family == iptables.NFTFamily(f) {
			c.families = append(c.families, f)
		}
	}
	foreign := func(b nft.Chain) bool { return !slices.Contains(xtables.BuiltinChains[:], b.Name) }
	if t.Family != nft.INet && slices.Contains(iptablesTables, t.Name) && !slices.ContainsFunc(base, foreign) {
		c.command, c.table = iptables.Command(c.families[0])+"-nft", t.Name
	}
	return c
}

// iptablesTables are those of iptables with chains at the hooks that matter. It drops nothing in
// table nat, which may be very large.
var iptablesTables = []string{iptables.Filter, iptables.Mangle, "security", "raw", iptables.NAT}

// legacy reads those of legacy iptables.
func (r *reader) legacy() (all []chain, err error) {
	for _, f := range model.Families {
		filtering := iptablesTables[:len(iptablesTables)-1]
		tables, ferr := iptables.LegacyFamily(f).ReadAll(filtering...)
		err = errors.Join(err, ferr)
		for _, name := range filtering {
			if t := tables[name]; t != nil {
				all = append(all, r.legacyTable(f, name, t)...)
			}
		}
	}
	return all, err
}

func (r *reader) legacyTable(f model.Family, table string, t *xtables.Table) (all []chain) {
	for _, h := range []hook{input, forward, output} {
		name := xtables.BuiltinChains[h]
		drops, exists := t.Builtin[name]
		if !exists {
			continue
		}
		c := chain{
			command: iptables.Command(f) + "-legacy", table: table, name: name, families: []model.Family{f}, hook: h, drops: drops,
		}
		for i := range t.Rules {
			if t.Rules[i].Chain == name {
				c.rules = append(c.rules, r.legacyRule(&t.Rules[i]))
			}
		}
		all = append(all, c)
	}
	return all
}

func (r *reader) legacyRule(from *xtables.Rule) (out rule) {
	if !from.AnyPacket {
		out.conditions = append(out.conditions, unclear)
	}
	for _, m := range from.Matches {
		out.conditions = append(out.conditions, match(m.Name, m.Info))
	}
	switch {
	case from.Accepts:
		out.action = accept
	case from.Drops:
		out.action = drop
	case from.Returns:
		out.action = leave
	case from.Jump != "":
		r.jump(&out, from.Jump)
	default:
		out.action = target(from.Target.Name)
	}
	return out
}

// jump completes a rule that leads into another chain.
func (r *reader) jump(out *rule, to string) {
	switch {
	case to == iptables.ForwardChain && r.accepts:
		out.conditions = append(out.conditions, func(p *packet) truth {
			if p.state == stateEstablished {
				return yes
			}
			return min(truthOf(p.masqueraded), p.translated)
		})
		out.action = accept
	case r.ours(to):
		out.action = goOn
	default:
		out.action = decide
	}
}

// target returns what a target of iptables does.
func target(name string) action {
	switch name {
	case "REJECT":
		return drop
	case "", "LOG", "NFLOG", "MARK", "CONNMARK", "SECMARK", "CONNSECMARK", "TCPMSS", "TRACE", "AUDIT", "CHECKSUM", "DSCP", "SET", "CT", "NOTRACK":
		return goOn
	}
	return decide
}

// struct xt_conntrack_mtinfo3 of linux/netfilter/xt_conntrack.h.
const (
	conntrackFlagsAt  = 146 // what is matched
	conntrackInvertAt = 148 // what of it is inverted
	conntrackStateAt  = 150
	conntrackState    = 1 << 0 // a flag
	conntrackSNAT     = 1 << 6 // a state, beside those of ct state
	conntrackDNAT     = 1 << 7
)

// match returns what a match of iptables asks.
func match(name string, info []byte) condition {
	at := func(offset int) uint16 { return binary.NativeEndian.Uint16(info[offset:]) }
	switch {
	case name == "comment":
		return func(*packet) truth { return yes }
	case name != "conntrack" || len(info) < conntrackStateAt+2 || at(conntrackFlagsAt) != conntrackState:
		return unclear
	}
	states, inverted := uint32(at(conntrackStateAt)), at(conntrackInvertAt) != 0
	return func(p *packet) truth {
		is := truthOf(states&p.state != 0)
		if states&conntrackDNAT != 0 {
			is = max(is, p.translated)
		}
		if states&conntrackSNAT != 0 {
			is = max(is, maybe)
		}
		if inverted {
			is = is.not()
		}
		return is
	}
}

// nftRules interprets a rule of nftables. One with a map of verdicts for states of connections
// is as many rules.
func (r *reader) nftRules(ctx context.Context, conn *nft.Conn, t nft.Table, exprs []nft.Expr) []rule {
	var out rule
	var value loaded
	for _, e := range exprs {
		switch e.Kind {
		case "counter", "log":
		case "ct", "meta":
			if e.Loads { // otherwise it sets something
				value = loaded{kind: e.Kind, key: e.Key}
			}
		case "bitwise":
			value.mask, value.masked = e.Mask, true
		case "cmp":
			out.conditions = append(out.conditions, value.compared(e.Op, e.Data))
		case "lookup":
			elements, ok := readStates(ctx, conn, t, e, value)
			if ok && e.Decides {
				return r.verdicts(&out, elements)
			}
			if e.Decides {
				out.action = decide
				return []rule{out}
			}
			out.conditions = append(out.conditions, memberOf(elements, ok, e.Inverted))
		case "match":
			out.conditions = append(out.conditions, match(e.Name, e.Info))
		case "target":
			out.action = target(e.Name)
		case "reject":
			out.action = drop
		case "queue":
			out.action = decide
		case "immediate":
			r.verdict(&out, e.Verdict)
		default:
			value = loaded{}
			out.conditions = append(out.conditions, unclear)
		}
	}
	return []rule{out}
}

// verdict completes a rule that ends with a verdict; nil is none.
func (r *reader) verdict(out *rule, v *nft.Verdict) {
	if v == nil {
		return
	}
	switch v.Code {
	case nft.AcceptCode:
		out.action = accept
	case nft.DropCode:
		out.action = drop
	case nft.ReturnCode:
		out.action = leave
	case nft.JumpCode, nft.GotoCode:
		r.jump(out, v.Chain)
	}
}

// loaded is the value that a rule looks at.
type loaded struct {
	kind   string // of the expression that loaded it, "" if it is not interpreted
	key    uint32
	masked bool
	mask   []byte
}

// Bits of ct status.
const (
	statusExpected  = 1 << 0
	statusSeenReply = 1 << 1
	statusDNAT      = 1 << 5
)

// compared returns the condition that the value is equal, or not, to some bytes.
func (l loaded) compared(op uint32, with []byte) condition {
	if op != unix.NFT_CMP_EQ && op != unix.NFT_CMP_NEQ {
		return unclear
	}
	equal := l.equal(with)
	if op == unix.NFT_CMP_NEQ {
		return func(p *packet) truth { return equal(p).not() }
	}
	return equal
}

func (l loaded) equal(with []byte) condition {
	switch {
	case l.kind == "ct" && l.key == unix.NFT_CT_STATE && len(with) == 4:
		return l.bits(with, func(p *packet) (uint32, uint32) { return p.state, ^uint32(0) })
	case l.kind == "ct" && l.key == unix.NFT_CT_STATUS && len(with) == 4:
		return l.bits(with, func(p *packet) (value, known uint32) {
			known = statusExpected | statusSeenReply | statusDNAT
			if p.state == stateEstablished {
				value |= statusSeenReply
			}
			switch p.translated {
			case yes:
				value |= statusDNAT
			case maybe:
				known &^= statusDNAT
			}
			return value, known
		})
	case l.kind == "meta" && !l.masked:
		return metaEqual(l.key, with)
	}
	return unclear
}

// bits returns the condition that a number with some known bits is equal to another.
func (l loaded) bits(with []byte, of func(*packet) (value, known uint32)) condition {
	mask := ^uint32(0)
	if l.masked {
		if len(l.mask) != 4 {
			return unclear
		}
		mask = binary.NativeEndian.Uint32(l.mask)
	}
	want := binary.NativeEndian.Uint32(with)
	return func(p *packet) truth {
		value, known := of(p)
		switch {
		case (value^want)&mask&known != 0: // a known bit differs
			return no
		case mask&^known != 0:
			return maybe
		}
		return yes
	}
}

// metaEqual returns the condition that a property of the packet has a value.
func metaEqual(key uint32, with []byte) condition {
	switch key {
	case unix.NFT_META_NFPROTO:
		return func(p *packet) truth { return truthOf(bytes.Equal(with, []byte{byte(iptables.NFTFamily(p.family))})) }
	case unix.NFT_META_L4PROTO: // Services have none of these
		if bytes.Equal(with, []byte{unix.IPPROTO_ICMP}) || bytes.Equal(with, []byte{unix.IPPROTO_ICMPV6}) {
			return func(*packet) truth { return no }
		}
	case unix.NFT_META_IIFNAME, unix.NFT_META_OIFNAME:
		if name, _, ended := bytes.Cut(with, []byte{0}); ended && string(name) == "lo" {
			return func(*packet) truth { return no }
		}
	case unix.NFT_META_IIF, unix.NFT_META_OIF:
		if len(with) == 4 && binary.NativeEndian.Uint32(with) == loopbackIndex {
			return func(*packet) truth { return no }
		}
	}
	return unclear
}

// loopbackIndex is the number of the loopback device in every network namespace.
const loopbackIndex = 1

// readStates reads a set or map whose keys are states of connections; false if it is another.
func readStates(ctx context.Context, conn *nft.Conn, t nft.Table, e nft.Expr, value loaded) (elements []nft.Element, ok bool) {
	if value.kind != "ct" || value.key != unix.NFT_CT_STATE || value.masked {
		return nil, false
	}
	err := conn.Elements(ctx, t, e.Set, func(e *nft.Element) error {
		if len(e.Key) != 4 {
			return unix.EINVAL // a concatenation
		}
		c := nft.Element{Key: bytes.Clone(e.Key)}
		if e.Verdict != nil {
			v := *e.Verdict
			c.Verdict = &v
		}
		elements = append(elements, c)
		return nil
	})
	return elements, err == nil
}

// memberOf returns the condition that the state of the connection is in a set.
func memberOf(elements []nft.Element, known, inverted bool) condition {
	if !known {
		return unclear
	}
	var states uint32
	for _, e := range elements {
		states |= binary.NativeEndian.Uint32(e.Key)
	}
	return func(p *packet) truth { return truthOf((states&p.state != 0) != inverted) }
}

// verdicts returns a rule for each state in a map of verdicts.
func (r *reader) verdicts(of *rule, elements []nft.Element) (rules []rule) {
	for _, e := range elements {
		out := rule{conditions: append(slices.Clone(of.conditions), memberOf([]nft.Element{e}, true, false)), action: decide}
		r.verdict(&out, e.Verdict)
		rules = append(rules, out)
	}
	return rules
}
