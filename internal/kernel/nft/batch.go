//go:build linux

package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// Owner is a number of the caller's for a message. If the kernel refuses a message, the
// error has its Owner. 0 is none.
type Owner uint32

// Batch is a transaction under construction. The kernel applies it atomically, or
// refuses it. The zero value is ready to use.
type Batch struct {
	// Isolate packs elements of different Owners into different messages, so that
	// refusals are those of one Owner. It is slower.
	Isolate bool
	// Expect is the expected number of elements; 0 is few.
	Expect int

	buf      []byte
	owners   []Owner // of each message
	last     int     // where the last message starts
	elements int
	sets     uint32 // the last number given to a new set

	open elementMessage
}

// elementMessage is the message that elements are being packed into.
type elementMessage struct {
	at, list int // offsets of the message and of its list of elements; at 0: none
	table    Table
	set      string
	typ      uint16
	owner    Owner
}

// Elements returns the number of elements that are added or removed so far.
func (b *Batch) Elements() int { return b.elements }

// Len returns how many bytes it has so far.
func (b *Batch) Len() int { return len(b.buf) }

// Empty reports whether the batch does nothing.
func (b *Batch) Empty() bool { return len(b.owners) == 0 }

func nftType(msg uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | msg }

// begin starts a message. endAt fills in its length.
func (b *Batch) begin(t Table, msg, flags uint16, owner Owner) int {
	if b.buf == nil {
		room := make([]byte, 0, minBatch+b.Expect*elementUsual)
		b.buf = nfnetlink.AppendNetfilterHeader(room, unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
		b.endAt(0)
	}
	b.seal()
	b.last = len(b.buf)
	b.buf = nfnetlink.AppendNetfilterHeader(b.buf, nftType(msg), flags, uint8(t.Family), 0)
	b.owners = append(b.owners, owner)
	return b.last
}

func (b *Batch) endAt(at int) { nfnetlink.EndMessage(b.buf, at) }

func (b *Batch) message(t Table, msg, flags uint16, owner Owner, fill func(attrs) attrs) {
	at := b.begin(t, msg, flags, owner)
	b.buf = fill(attrs(b.buf))
	b.endAt(at)
}

const create = unix.NLM_F_CREATE

// AddTable adds a table. If it exists and is dormant, it becomes active.
func (b *Batch) AddTable(t Table) {
	b.message(t, unix.NFT_MSG_NEWTABLE, create, 0, func(a attrs) attrs {
		a = a.text(unix.NFTA_TABLE_NAME, t.Name).u32(unix.NFTA_TABLE_FLAGS, 0)
		if t.Comment != "" {
			a = a.bytes(tableUserdata, tlv(nil, 0, append([]byte(t.Comment), 0)))
		}
		return a
	})
}

const tableUserdata = 6 // NFTA_TABLE_USERDATA, kernel 5.9

// DeleteTable removes a table with all its contents.
func (b *Batch) DeleteTable(t Table) {
	b.message(t, unix.NFT_MSG_DELTABLE, 0, 0, func(a attrs) attrs {
		return a.text(unix.NFTA_TABLE_NAME, t.Name)
	})
}

// AddChain adds a chain.
func (b *Batch) AddChain(t Table, c Chain) {
	b.message(t, unix.NFT_MSG_NEWCHAIN, create, 0, func(a attrs) attrs {
		a = a.text(unix.NFTA_CHAIN_TABLE, t.Name).text(unix.NFTA_CHAIN_NAME, c.Name)
		if c.Type == "" {
			return a
		}
		a = a.nested(unix.NFTA_CHAIN_HOOK, func(a attrs) attrs {
			a = a.u32(unix.NFTA_HOOK_HOOKNUM, c.Hook).u32(unix.NFTA_HOOK_PRIORITY, uint32(c.Priority))
			if c.Device != "" {
				a = a.text(unix.NFTA_HOOK_DEV, c.Device)
			}
			return a
		})
		a = a.u32(unix.NFTA_CHAIN_POLICY, uint32(AcceptCode))
		return a.text(unix.NFTA_CHAIN_TYPE, c.Type)
	})
}

// DeleteChain removes a chain and its rules. Nothing may refer to it.
func (b *Batch) DeleteChain(t Table, name string) {
	b.message(t, unix.NFT_MSG_DELCHAIN, 0, 0, func(a attrs) attrs {
		return a.text(unix.NFTA_CHAIN_TABLE, t.Name).text(unix.NFTA_CHAIN_NAME, name)
	})
}

// FlushChain removes all rules of a chain.
func (b *Batch) FlushChain(t Table, name string) {
	b.message(t, unix.NFT_MSG_DELRULE, 0, 0, func(a attrs) attrs {
		return a.text(unix.NFTA_RULE_TABLE, t.Name).text(unix.NFTA_RULE_CHAIN, name)
	})
}

// protocolsSet is the name pattern of a rule's anonymous set of protocols; the
// kernel fills in the number.
const protocolsSet = "__set%d"

// lookupProtocols matches TCP, UDP and SCTP.
func (a attrs) lookupProtocols(id uint32) attrs {
	return Protocol.load(a, 0).expr("lookup", func(a attrs) attrs {
		a = a.text(unix.NFTA_LOOKUP_SET, protocolsSet).u32(unix.NFTA_LOOKUP_SREG, register(0).number())
		return a.u32(unix.NFTA_LOOKUP_SET_ID, id)
	})
}

// ruleTag is the type of our tag in a rule's userdata: any number that nft(8)
// does not use.
const ruleTag = 0x53

// AddRule appends a rule to its chain.
func (b *Batch) AddRule(t Table, r Rule) {
	if r.Protocols {
		b.addProtocols(t)
	}
	b.message(t, unix.NFT_MSG_NEWRULE, create|unix.NLM_F_APPEND, 0, func(a attrs) attrs {
		a = a.text(unix.NFTA_RULE_TABLE, t.Name).text(unix.NFTA_RULE_CHAIN, r.Chain)
		a = a.nested(unix.NFTA_RULE_EXPRESSIONS, func(a attrs) attrs {
			if r.Protocols {
				a = a.lookupProtocols(b.sets)
			}
			return append(a, r.Exprs.attrs...)
		})
		if r.Tag == 0 {
			return a
		}
		return a.bytes(unix.NFTA_RULE_USERDATA, tlv(nil, ruleTag, binary.BigEndian.AppendUint64(nil, r.Tag)))
	})
}

// addProtocols adds the anonymous set for the next rule.
func (b *Batch) addProtocols(t Table) {
	s := &Set{Name: protocolsSet, Key: Type{Parts: Concat{Protocol}}, Size: 3}
	b.addSet(t, s, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT, tlvU32(nil, udKeyByteOrder, 1))
	b.message(t, unix.NFT_MSG_NEWSETELEM, create, 0, func(a attrs) attrs {
		a = a.text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name).text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
		a = a.u32(unix.NFTA_SET_ELEM_LIST_SET_ID, b.sets)
		return a.nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(a attrs) attrs {
			for _, p := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
				a = a.element(&Element{Key: []byte{p}})
			}
			return a
		})
	})
}

// AddSet adds a set or map.
func (b *Batch) AddSet(t Table, s *Set) { b.addSet(t, s, s.flags(), s.userdata()) }

func (b *Batch) addSet(t Table, s *Set, flags uint32, userdata []byte) {
	// The kernel requires a number that is unique in the batch, even if nothing refers
	// to it.
	b.sets++
	b.message(t, unix.NFT_MSG_NEWSET, create, 0, func(a attrs) attrs {
		a = a.text(unix.NFTA_SET_TABLE, t.Name).text(unix.NFTA_SET_NAME, s.Name).u32(unix.NFTA_SET_FLAGS, flags)
		a = a.u32(unix.NFTA_SET_KEY_TYPE, s.Key.id()).u32(unix.NFTA_SET_KEY_LEN, uint32(s.Key.Len()))
		if s.isMap() {
			a = a.u32(unix.NFTA_SET_DATA_TYPE, s.Data.id()).u32(unix.NFTA_SET_DATA_LEN, uint32(s.Data.Len()))
		}
		a = a.u32(unix.NFTA_SET_ID, b.sets)
		if s.Size > 0 {
			a = a.nested(unix.NFTA_SET_DESC, func(a attrs) attrs { return a.u32(unix.NFTA_SET_DESC_SIZE, s.Size) })
		}
		a = a.bytes(unix.NFTA_SET_USERDATA, userdata)
		if s.Counter {
			a = a.nested(setExpr, func(a attrs) attrs { return a.counter(0, 0) })
		}
		return a
	})
}

// DeleteSet removes a set with its elements. Nothing may refer to it.
func (b *Batch) DeleteSet(t Table, name string) {
	b.message(t, unix.NFT_MSG_DELSET, 0, 0, func(a attrs) attrs {
		return a.text(unix.NFTA_SET_TABLE, t.Name).text(unix.NFTA_SET_NAME, name)
	})
}

func (s *Set) flags() uint32 {
	var f uint32
	if s.isMap() {
		f |= unix.NFT_SET_MAP
	}
	if s.Dynamic {
		f |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	return f
}

// AddElement adds an element to a set.
func (b *Batch) AddElement(t Table, set string, e *Element, owner Owner) {
	b.element(t, set, e, unix.NFT_MSG_NEWSETELEM, owner)
}

// DeleteElement removes the element with that key.
func (b *Batch) DeleteElement(t Table, set string, e *Element, owner Owner) {
	b.element(t, set, &Element{Key: e.Key}, unix.NFT_MSG_DELSETELEM, owner)
}

const (
	minBatch = 1 << 14
	// elementUsual is the length of an element with IPv4 addresses.
	elementUsual = 64
	// elementMax is more than the length of any element.
	elementMax = 512
)

func (b *Batch) element(t Table, set string, e *Element, msg uint16, owner Owner) {
	o := &b.open
	fits := o.at != 0 && o.set == set && o.typ == msg && o.table == t &&
		(!b.Isolate || o.owner == owner) && len(b.buf)-o.list < maxAttr-elementMax
	if !fits {
		at := b.begin(t, msg, create, owner)
		a := attrs(b.buf).text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name).text(unix.NFTA_SET_ELEM_LIST_SET, set)
		a, list := a.open(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		b.buf = a
		b.open = elementMessage{at: at, list: list, table: t, set: set, typ: msg, owner: owner}
	}
	b.buf = attrs(b.buf).element(e)
	b.elements++
}

// seal ends the message that elements are packed into.
func (b *Batch) seal() {
	if b.open.at != 0 {
		attrs(b.buf).close(b.open.list)
		b.endAt(b.open.at)
		b.open = elementMessage{}
	}
}

func (a attrs) element(e *Element) attrs {
	a, at := a.open(unix.NFTA_LIST_ELEM)
	a = a.data(unix.NFTA_SET_ELEM_KEY, e.Key)
	if e.Verdict != nil {
		a = a.verdict(unix.NFTA_SET_ELEM_DATA, e.Verdict)
	} else if e.Data != nil {
		a = a.data(unix.NFTA_SET_ELEM_DATA, e.Data)
	}
	if e.Expires != 0 {
		a = a.u64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(e.Expires.Milliseconds()))
	}
	if e.Packets != 0 {
		a = a.nested(unix.NFTA_SET_ELEM_EXPR, func(a attrs) attrs { return a.counter(e.Packets, e.Bytes) })
	}
	a.close(at)
	return a
}

const setExpr = 17 // NFTA_SET_EXPR, kernel 5.7

// data is value without a closure: it runs for every element.
func (a attrs) data(typ uint16, v []byte) attrs {
	a, at := a.open(typ)
	a = a.bytes(unix.NFTA_DATA_VALUE, v)
	a.close(at)
	return a
}

func (a attrs) counter(packets, bytes uint64) attrs {
	a = a.text(unix.NFTA_EXPR_NAME, "counter")
	return a.nested(unix.NFTA_EXPR_DATA, func(a attrs) attrs {
		return a.u64(unix.NFTA_COUNTER_BYTES, bytes).u64(unix.NFTA_COUNTER_PACKETS, packets)
	})
}

// finish ends the batch. Only the last message requests an acknowledgement: the kernel always
// reports refusals.
func (b *Batch) finish() []byte {
	b.seal()
	nfnetlink.RequestAck(b.buf, b.last)
	end := len(b.buf)
	b.buf = nfnetlink.AppendNetfilterHeader(b.buf, unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
	b.endAt(end)
	return b.buf
}
