package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/nft"
)

// expr is the beginning of a rule to which more is added: for the kernel, and
// as nft(8) lists it.
type expr struct {
	attrs nft.Attrs
	text  string
}

func goOn() expr { return expr{} }

// then adds a step in both forms.
func (e expr) then(text string, step func(nft.Attrs) nft.Attrs) expr {
	if e.text != "" {
		text = " " + text
	}
	return expr{step(e.attrs), e.text + text}
}

func (e expr) verdict(v *nft.Verdict) expr {
	return e.then(v.String(), func(a nft.Attrs) nft.Attrs { return a.Verdict(*v) })
}

func (e expr) drop() expr { return e.verdict(&nft.Verdict{Code: nft.DropCode}) }
func (e expr) back() expr { return e.verdict(&nft.Verdict{Code: nft.ReturnCode}) }

func (e expr) goTo(c chain) expr {
	if c.kind == drop {
		return e.drop()
	}
	return e.verdict(nft.Goto(c.name()))
}

func (e expr) jump(c chain) expr {
	return e.verdict(&nft.Verdict{Code: nft.JumpCode, Chain: c.name()})
}

func (e expr) count() expr      { return e.then(nft.CounterText(0, 0), nft.Attrs.Count) }
func (e expr) masquerade() expr { return e.then("masquerade fully-random", nft.Attrs.Masquerade) }

// refuseTCP answers with a reset. The match of the protocol goes without saying
// in what nft lists.
func (e expr) refuseTCP() expr {
	return e.then("reject with tcp reset", func(a nft.Attrs) nft.Attrs {
		return protocol.load(a, 0).Equal(0, []byte{byte(model.TCP)}).RejectTCP()
	})
}

// refuse answers with ICMP, that the port cannot be reached.
func (e expr) refuse(f nft.Family) expr {
	return e.then("reject", func(a nft.Attrs) nft.Attrs { return a.RejectPort(f) })
}

// equals goes on only if v has the bytes, which nft writes as text.
func (e expr) equals(v value, bytes []byte, text string) expr {
	return e.then(v.text+" "+text, func(a nft.Attrs) nft.Attrs { return v.load(a, 0).Equal(0, bytes) })
}

// word is a number as the kernel has it in a register.
func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func (e expr) anyBit(v value, bits uint32, text string) expr {
	return e.then(v.text+" "+text, func(a nft.Attrs) nft.Attrs {
		return v.load(a, 0).Bitwise(0, word(bits), word(0)).NotEqual(0, word(0))
	})
}

func (e expr) markIs(bit uint32) expr {
	return e.anyBit(packetMark, bit, fmt.Sprintf("& 0x%08x != 0x%08x", bit, 0))
}

// putMark sets the bit of the packet's mark, and takeMark takes it away where it
// is set.
func (e expr) putMark(bit uint32) expr  { return e.changeMark("|", ^bit, bit) }
func (e expr) takeMark(bit uint32) expr { return e.changeMark("^", ^uint32(0), bit) }

func (e expr) changeMark(sign string, mask, xor uint32) expr {
	return e.then(fmt.Sprintf("meta mark set meta mark %s 0x%08x", sign, xor), func(a nft.Attrs) nft.Attrs {
		a = packetMark.load(a, 0).Bitwise(0, word(mask), word(xor))
		return a.SetMeta(unix.NFT_META_MARK, 0)
	})
}

const (
	ctStateNew   = 1 << 3 // NF_CT_STATE_BIT(IP_CT_NEW)
	ctStatusDNAT = 1 << 5 // IPS_DST_NAT
)

func (e expr) isNew() expr        { return e.anyBit(ctState, ctStateNew, "new") }
func (e expr) isTranslated() expr { return e.anyBit(ctStatus, ctStatusDNAT, "dnat") }

func (e expr) protocolIs(p model.Protocol) expr {
	return e.equals(protocol, []byte{byte(p)}, nft.ProtocolText(byte(p)))
}

// sourceIsLocal matches packets from an address of this node, destIsLocal those to
// one: what the routing table calls local, on an interface or not.
func (e expr) sourceIsLocal() expr { return e.equals(sourceType, word(unix.RTN_LOCAL), "local") }
func (e expr) destIsLocal() expr   { return e.equals(destType, word(unix.RTN_LOCAL), "local") }

// cameBy matches packets that came through an interface of that name, or of one
// that begins with it.
func (e expr) cameBy(name string, beginning bool) expr {
	bytes, text := []byte(name), strings.ReplaceAll(name, "*", `\*`)
	if beginning {
		text += "*"
	} else {
		bytes = append(bytes, make([]byte, unix.IFNAMSIZ-len(bytes))...)
	}
	return e.equals(interfaceName, bytes, `"`+text+`"`)
}

// inPrefix matches addresses of a range.
func (e expr) inPrefix(addr value, p netip.Prefix) expr {
	p = p.Masked()
	if p.IsSingleIP() {
		return e.equals(addr, p.Addr().AsSlice(), p.Addr().String())
	}
	return e.then(addr.text+" "+p.String(), func(a nft.Attrs) nft.Attrs {
		a = addr.masked(p.Bits()).load(a, 0)
		return a.Equal(0, p.Addr().AsSlice())
	})
}

// notInPrefix matches all other addresses.
func (e expr) notInPrefix(addr value, p netip.Prefix) expr {
	p = p.Masked()
	text := p.String()
	if p.IsSingleIP() {
		text = p.Addr().String()
	}
	return e.then(addr.text+" != "+text, func(a nft.Attrs) nft.Attrs {
		a = addr.masked(p.Bits()).load(a, 0)
		return a.NotEqual(0, p.Addr().AsSlice())
	})
}

// maskBytes is a mask of that many bytes in which the first bits are set.
func maskBytes(size, bits int) []byte {
	b := make([]byte, size)
	for i := range bits {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return b
}

// in goes on only if the key is in the set.
func (e expr) in(set string, k concat) expr {
	return e.then(k.text()+" @"+set, func(a nft.Attrs) nft.Attrs {
		a, _ = k.load(a, 0)
		return a.InSet(set, 0)
	})
}

// lookUp goes on with the verdict that a map has for the key.
func (e expr) lookUp(set string, k concat) expr {
	return e.then(k.text()+" vmap @"+set, func(a nft.Attrs) nft.Attrs {
		a, _ = k.load(a, 0)
		return a.VerdictMap(set, 0)
	})
}

// translate sends connections to what a map of endpoints has for the key.
func (e expr) translate(l *layout, set string, k concat) expr {
	return e.then(fmt.Sprintf("dnat %s to %s map @%s", l.nf, k.text(), set), func(a nft.Attrs) nft.Attrs {
		a, _ = k.load(a, 0)
		return a.Map(set, 0, 0).DNAT(l.nf, 0, nft.Register(0).After(l.addrLen))
	})
}

// note puts a key and its data into a map, for some time.
func (e expr) note(set string, k, data concat, seconds uint32) expr {
	text := fmt.Sprintf("update @%s { %s timeout %s : %s }", set, k.text(), timeText(seconds), data.text())
	return e.then(text, func(a nft.Attrs) nft.Attrs {
		a, at := k.load(a, 0)
		a, _ = data.load(a, at)
		return a.UpdateMap(set, 0, at, seconds)
	})
}

// timeText writes seconds as nft does: 1d2h3m4s, without what is zero.
func timeText(seconds uint32) string {
	var b strings.Builder
	for _, unit := range []struct {
		name    string
		seconds uint32
	}{{"d", 24 * 60 * 60}, {"h", 60 * 60}, {"m", 60}, {"s", 1}} {
		if n := seconds / unit.seconds; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
		}
		seconds %= unit.seconds
	}
	return b.String()
}
