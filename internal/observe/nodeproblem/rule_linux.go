package nodeproblem

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
	"sluice/internal/model"
)

// header adds what a rule of legacy iptables asks of addresses, interfaces and the protocol.
func (r *rule) header(h *xtables.Header) {
	add := func(set bool, inverted xtables.Inversion, c condition) {
		switch {
		case !set:
		case h.Inverted&inverted != 0:
			r.asks(func(p *packet) truth { return c(p).not() })
		default:
			r.asks(c)
		}
	}
	address := func(at side, addr, mask []byte) condition {
		want, mask := bytes.Clone(addr), bytes.Clone(mask)
		return func(p *packet) truth {
			if p.side != at || !p.endpoint.IsValid() {
				return maybe
			}
			got := p.endpoint.Addr().AsSlice()
			return truthOf(len(got) == len(want) && bytes.Equal(masked(got, mask), masked(want, mask)))
		}
	}
	before := len(r.conditions)
	add(!zero(h.SourceMask), xtables.Source, address(source, h.Source, h.SourceMask))
	add(!zero(h.DestinationMask), xtables.Destination, address(destination, h.Destination, h.DestinationMask))
	r.particular = r.particular || len(r.conditions) > before
	add(h.In != "", xtables.In, through(h.In))
	add(h.Out != "", xtables.Out, through(h.Out))
	add(h.Protocol != 0, xtables.Protocol, r.ofProtocol(h.Protocol))
	add(h.Other, 0, unclear)
}

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

func masked(b, mask []byte) []byte {
	out := make([]byte, len(b))
	for i := range min(len(b), len(mask)) {
		out[i] = b[i] & mask[i]
	}
	return out
}

// through returns the condition that packets come in, or go out, through an interface.
func through(name string) condition {
	if name == "lo" {
		return func(*packet) truth { return no }
	}
	if strings.HasSuffix(name, "+") {
		return unclear
	}
	return func(p *packet) truth {
		if p.idle != nil && p.idle(name) {
			return no
		}
		return maybe
	}
}

func (r *rule) ofProtocol(number uint16) condition {
	if number == unix.IPPROTO_ICMP || number == unix.IPPROTO_ICMPV6 { // Services have none of these
		return func(*packet) truth { return no }
	}
	r.particular = true
	return func(p *packet) truth {
		if !p.endpoint.IsValid() {
			return maybe
		}
		return truthOf(uint16(p.protocol) == number)
	}
}

func (r *rule) match(name string, revision uint8, info []byte) {
	switch {
	case name == "comment":
	case name == "conntrack":
		r.asks(conntrackMatch(info))
	case name == "tcp" && len(info) >= 12, name == "udp" && len(info) >= 9:
		r.portMatch(name, info)
	case name == "multiport" && revision == 1 && len(info) >= 48:
		r.multiportMatch(info)
	default:
		r.asks(unclear)
	}
}

// ports adds the condition that a port of the packet is one of some.
func (r *rule) ports(at side, inverted bool, has func(port uint16) bool) {
	r.particular = true
	r.asks(func(p *packet) truth {
		if p.side != at || p.endpoint.Port() == 0 {
			return maybe
		}
		return truthOf(has(p.endpoint.Port()) != inverted)
	})
}

// portMatch interprets struct xt_tcp and xt_udp: two ranges of ports, what matters of TCP's
// flags and options, and what is inverted.
func (r *rule) portMatch(name string, info []byte) {
	at := func(i int) uint16 { return binary.NativeEndian.Uint16(info[2*i:]) }
	inverted := info[8]
	if name == "tcp" {
		inverted = info[11]
		if info[8] != 0 || info[9] != 0 {
			r.asks(unclear)
		}
	}
	for i, end := range []side{source, destination} {
		if from, to := at(2*i), at(2*i+1); from != 0 || to != 1<<16-1 {
			r.ports(end, inverted&(1<<i) != 0, func(port uint16) bool { return from <= port && port <= to })
		}
	}
}

// multiportMatch interprets struct xt_multiport_v1: which side, how many ports, the ports, which
// of them begin a range, and whether the match is inverted.
func (r *rule) multiportMatch(info []byte) {
	const portsAt, rangesAt, invertAt, most = 2, 32, 47, 15
	sides := map[byte]side{0: source, 1: destination}
	at, known := sides[info[0]]
	if !known || info[1] > most {
		r.asks(unclear) // either
		return
	}
	var ranges [][2]uint16
	for i := 0; i < int(info[1]); i++ {
		port := binary.NativeEndian.Uint16(info[portsAt+2*i:])
		ranges = append(ranges, [2]uint16{port, port})
		if info[rangesAt+i] != 0 && i+1 < int(info[1]) {
			i++
			ranges[len(ranges)-1][1] = binary.NativeEndian.Uint16(info[portsAt+2*i:])
		}
	}
	r.ports(at, info[invertAt] != 0, func(port uint16) bool {
		return slices.ContainsFunc(ranges, func(r [2]uint16) bool { return r[0] <= port && port <= r[1] })
	})
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

func conntrackMatch(info []byte) condition {
	at := func(offset int) uint16 { return binary.NativeEndian.Uint16(info[offset:]) }
	if len(info) < conntrackStateAt+2 || at(conntrackFlagsAt) != conntrackState {
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

// rules interprets a rule of nftables. One with a map of verdicts for states of connections is as
// many rules.
func (t *nftTable) rules(ctx context.Context, exprs []nft.Expr) (_ []rule, err error) {
	var out rule
	var value loaded
	for _, e := range exprs {
		switch e.Kind {
		case "counter", "log":
		case "ct", "meta", "payload":
			if e.Loads { // otherwise it sets something
				value = loaded{Expr: e}
			}
		case "bitwise":
			value.mask, value.masked = e.Mask, true
		case "cmp":
			out.compares(value, e.Op, e.Data, nil)
		case "range":
			out.compares(value, e.Op, e.Data, e.Last)
		case "lookup":
			elements, known, lerr := t.elements(ctx, e.Set, value)
			switch {
			case lerr != nil:
				return nil, lerr
			case e.Decides && known:
				return t.verdicts(ctx, &out, value, elements)
			case e.Decides:
				out.action = decide
				return []rule{out}, nil
			case !known:
				out.asks(unclear)
			default:
				out.member(value, elements, e.Inverted)
			}
		case "match":
			out.match(e.Name, uint8(e.Revision), e.Info)
		case "target":
			out.action = target(e.Name)
		case "reject":
			out.action = drop
		case "queue":
			out.action = decide
		case "immediate":
			err = t.verdict(ctx, &out, e.Verdict)
		default:
			value = loaded{}
			out.asks(unclear)
		}
	}
	return []rule{out}, err
}

// verdict completes a rule that ends with a verdict; nil is none.
func (t *nftTable) verdict(ctx context.Context, out *rule, v *nft.Verdict) error {
	if v == nil {
		return nil
	}
	switch v.Code {
	case nft.AcceptCode:
		out.action = accept
	case nft.DropCode:
		out.action = drop
	case nft.ReturnCode:
		out.action = leave
	case nft.JumpCode, nft.GotoCode:
		return t.follow(ctx, out, v.Chain, v.Code == nft.GotoCode)
	}
	return nil
}

// loaded is the value that a rule looks at: an expression that loaded it, and the bits that
// count. Its Kind is "" if it is not interpreted.
type loaded struct {
	nft.Expr
	masked bool
	mask   []byte
}

// Bits of ct status.
const (
	statusExpected  = 1 << 0
	statusSeenReply = 1 << 1
	statusDNAT      = 1 << 5
)

// compares adds the condition that the value is equal to some bytes, or less, and so on; or that
// it is from some to others.
func (r *rule) compares(l loaded, op uint32, with, last []byte) {
	if l.Kind == "payload" {
		r.particular = true
		r.asks(l.field(func(got []byte) truth {
			if last != nil {
				in := bytes.Compare(with, got) <= 0 && bytes.Compare(got, last) <= 0
				return truthOf(in == (op == unix.NFT_RANGE_EQ))
			}
			return truthOf(holds(op, bytes.Compare(got, with)))
		}))
		return
	}
	if last != nil || op != unix.NFT_CMP_EQ && op != unix.NFT_CMP_NEQ {
		r.asks(unclear)
		return
	}
	equal := r.equal(l, with)
	if op == unix.NFT_CMP_NEQ {
		r.asks(func(p *packet) truth { return equal(p).not() })
		return
	}
	r.asks(equal)
}

// holds reports whether a comparison with some result is what was asked for.
func holds(op uint32, result int) bool {
	switch op {
	case unix.NFT_CMP_EQ:
		return result == 0
	case unix.NFT_CMP_NEQ:
		return result != 0
	case unix.NFT_CMP_LT:
		return result < 0
	case unix.NFT_CMP_LTE:
		return result <= 0
	case unix.NFT_CMP_GT:
		return result > 0
	}
	return result >= 0
}

// field returns the condition that something is true of the bytes of the packet that were loaded.
func (l loaded) field(is func([]byte) truth) condition {
	return func(p *packet) truth {
		got := p.bytes(l.Base, l.Offset, l.Len)
		if got == nil || l.masked && len(l.mask) != len(got) {
			return maybe
		}
		if l.masked {
			got = masked(got, l.mask)
		}
		return is(got)
	}
}

// bytes returns some bytes of the packet's headers, nil if they are not known.
func (p *packet) bytes(base, offset, length uint32) []byte {
	if p.side == neither || !p.endpoint.IsValid() {
		return nil
	}
	known, at := p.endpoint.Addr().AsSlice(), uint32(12) // the source in a header of IPv4
	if p.family == model.IPv6 {
		at = 8
	}
	if p.side == destination {
		at += uint32(len(known))
	}
	switch {
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && p.endpoint.Port() == 0:
		return nil
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		known, at = binary.BigEndian.AppendUint16(nil, p.endpoint.Port()), 0
		if p.side == destination {
			at = 2
		}
	case base != unix.NFT_PAYLOAD_NETWORK_HEADER:
		return nil
	}
	if offset < at || offset+length > at+uint32(len(known)) || length == 0 {
		return nil
	}
	return known[offset-at:][:length]
}

func (r *rule) equal(l loaded, with []byte) condition {
	switch {
	case l.Kind == "ct" && l.Key == unix.NFT_CT_STATE && len(with) == 4:
		return l.bits(with, func(p *packet) (uint32, uint32) { return p.state, ^uint32(0) })
	case l.Kind == "ct" && l.Key == unix.NFT_CT_STATUS && len(with) == 4:
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
	case l.Kind == "meta" && !l.masked:
		return r.metaEqual(l.Key, with)
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
func (r *rule) metaEqual(key uint32, with []byte) condition {
	switch key {
	case unix.NFT_META_NFPROTO:
		return func(p *packet) truth { return truthOf(bytes.Equal(with, []byte{byte(iptables.NFTFamily(p.family))})) }
	case unix.NFT_META_L4PROTO:
		if len(with) == 1 {
			return r.ofProtocol(uint16(with[0]))
		}
	case unix.NFT_META_IIFNAME, unix.NFT_META_OIFNAME:
		if name, _, ended := bytes.Cut(with, []byte{0}); ended {
			return through(string(name))
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

// size is how long a value that can be looked up in sets is, 0 if it cannot.
func (l loaded) size() int {
	switch {
	case l.masked:
	case l.Kind == "ct" && l.Key == unix.NFT_CT_STATE:
		return 4
	case l.Kind == "meta" && l.Key == unix.NFT_META_L4PROTO:
		return 1
	case l.Kind == "payload":
		return int(l.Len)
	}
	return 0
}

// maxElements is how many elements of a set are looked at.
const maxElements = 1 << 10

// elements reads a set or map of single values; not known if it is another, or very large.
func (t *nftTable) elements(ctx context.Context, set string, value loaded) (elements []nft.Element, known bool, err error) {
	if t.sets == nil {
		t.sets = map[string]nft.SetInfo{}
		all, err := t.conn.AllSets(ctx, t.table)
		if err != nil {
			return nil, false, err
		}
		for _, s := range all {
			t.sets[s.Name] = s
		}
	}
	// Others have ranges, change with packets, or have keys of several values.
	const changing = unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	if s := t.sets[set]; value.size() == 0 || int(s.KeyLen) != value.size() || s.Flags&(unix.NFT_SET_INTERVAL|changing) != 0 {
		return nil, false, nil
	}
	known = true
	err = t.conn.Elements(ctx, t.table, set, func(e *nft.Element) error {
		if known = known && len(elements) < maxElements && len(e.Key) == value.size(); !known {
			return nil
		}
		c := nft.Element{Key: bytes.Clone(e.Key)}
		if e.Verdict != nil {
			v := *e.Verdict
			c.Verdict = &v
		}
		elements = append(elements, c)
		return nil
	})
	return elements, known && err == nil, err
}

// member adds the condition that the value is one of some elements.
func (r *rule) member(l loaded, elements []nft.Element, inverted bool) {
	var any []condition
	for _, e := range elements {
		var one rule
		if l.Kind == "ct" {
			states := binary.NativeEndian.Uint32(e.Key)
			one.asks(func(p *packet) truth { return truthOf(states&p.state != 0) })
		} else {
			one.compares(l, unix.NFT_CMP_EQ, e.Key, nil)
		}
		r.particular = r.particular || one.particular
		any = append(any, one.conditions...)
	}
	r.asks(func(p *packet) truth {
		is := no
		for _, c := range any {
			is = max(is, c(p))
		}
		if inverted {
			return is.not()
		}
		return is
	})
}

// verdicts returns a rule for each element of a map of verdicts.
func (t *nftTable) verdicts(ctx context.Context, of *rule, value loaded, elements []nft.Element) (rules []rule, err error) {
	for _, e := range elements {
		out := rule{conditions: slices.Clone(of.conditions), particular: of.particular, action: decide}
		out.member(value, []nft.Element{e}, false)
		if err := t.verdict(ctx, &out, e.Verdict); err != nil {
			return nil, err
		}
		rules = append(rules, out)
	}
	return rules, nil
}
