package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// request sends one message and calls f with the attributes of each answer.
func (c *Conn) request(ctx context.Context, family Family, msg uint16, body attrs, f func(attrs) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.nl.Do(message(family, msg, body), withAttrs(f))
}

// dump does the same for all objects of a kind. If the ruleset changes meanwhile, the error is
// ErrInterrupted.
func (c *Conn) dump(ctx context.Context, family Family, msg uint16, filter attrs, f func(attrs) error) error {
	return c.nl.Dump(ctx, message(family, msg, filter), withAttrs(f))
}

func message(family Family, msg uint16, body attrs) []byte {
	return append(nfnetlink.AppendNetfilterHeader(nil, nftType(msg), 0, uint8(family), 0), body...)
}

func withAttrs(f func(attrs) error) func([]byte) error {
	return func(payload []byte) error { return f(attrs(payload[nfnetlink.GenHeaderLen:])) }
}

// Generation returns the number of the ruleset's current version. Each transaction of
// any program in the network namespace increments it.
func (c *Conn) Generation(ctx context.Context) (uint32, error) {
	var gen uint32
	err := c.request(ctx, 0, unix.NFT_MSG_GETGEN, nil, func(a attrs) error {
		gen = parseGeneration(a)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("reading the ruleset's generation: %w", err)
	}
	return gen, nil
}

func parseGeneration(b []byte) (gen uint32) {
	for typ, v := range nfnetlink.Attrs(b) {
		if typ == unix.NFTA_GEN_ID {
			gen = toU32(v)
		}
	}
	return gen
}

// Tables reads a family's tables.
func (c *Conn) Tables(ctx context.Context, family Family) ([]Table, error) {
	var tables []Table
	err := c.dump(ctx, family, unix.NFT_MSG_GETTABLE, nil, func(a attrs) error {
		t := Table{Family: family}
		for typ, v := range nfnetlink.Attrs(a) {
			switch typ {
			case unix.NFTA_TABLE_NAME:
				t.Name = toText(v)
			case unix.NFTA_TABLE_FLAGS:
				t.Dormant = toU32(v)&tableDormant != 0
			}
		}
		tables = append(tables, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the tables of family %s: %w", family, err)
	}
	return tables, nil
}

const tableDormant = 1 // NFT_TABLE_F_DORMANT

// TableNames reads the names of a family's tables: none if the kernel has no
// nftables for the family.
func (c *Conn) TableNames(ctx context.Context, family Family) (names []string, err error) {
	tables, err := c.Tables(ctx, family)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	for _, t := range tables {
		names = append(names, t.Name)
	}
	return names, err
}

// Chains reads a table's chains.
func (c *Conn) Chains(ctx context.Context, t Table) ([]Chain, error) {
	var chains []Chain
	err := c.eachChain(ctx, t.Family, func(table string, ch Chain) {
		if table == t.Name {
			chains = append(chains, ch)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chains of table %s %s: %w", t.Family, t.Name, err)
	}
	return chains, nil
}

// BaseChains reads the base chains of all tables of a family, by table.
func (c *Conn) BaseChains(ctx context.Context, family Family) (map[string][]Chain, error) {
	chains := map[string][]Chain{}
	err := c.eachChain(ctx, family, func(table string, ch Chain) {
		if ch.Type != "" {
			chains[table] = append(chains[table], ch)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("reading the base chains of family %s: %w", family, err)
	}
	return chains, nil
}

// eachChain calls f for the chains of all tables of a family: the kernel dumps them together.
func (c *Conn) eachChain(ctx context.Context, family Family, f func(table string, ch Chain)) error {
	return c.dump(ctx, family, unix.NFT_MSG_GETCHAIN, nil, func(a attrs) error {
		var ch Chain
		var table string
		for typ, v := range nfnetlink.Attrs(a) {
			switch typ {
			case unix.NFTA_CHAIN_TABLE:
				table = toText(v)
			case unix.NFTA_CHAIN_NAME:
				ch.Name = toText(v)
			case unix.NFTA_CHAIN_TYPE:
				ch.Type = toText(v)
			case unix.NFTA_CHAIN_HOOK:
				ch.Hook, ch.Priority = parseHook(v)
			case unix.NFTA_CHAIN_POLICY:
				ch.Drops = toU32(v) == uint32(DropCode)
			}
		}
		f(table, ch)
		return nil
	})
}

func parseHook(b []byte) (hook uint32, priority int32) {
	for typ, v := range nfnetlink.Attrs(b) {
		switch typ {
		case unix.NFTA_HOOK_HOOKNUM:
			hook = toU32(v)
		case unix.NFTA_HOOK_PRIORITY:
			priority = int32(toU32(v))
		}
	}
	return hook, priority
}

// Rules reads a table's rules, in order, without their expressions.
func (c *Conn) Rules(ctx context.Context, t Table) ([]Rule, error) {
	var rules []Rule
	filter := attrs(nil).text(unix.NFTA_RULE_TABLE, t.Name)
	err := c.dump(ctx, t.Family, unix.NFT_MSG_GETRULE, filter, func(a attrs) error {
		var r Rule
		for typ, v := range nfnetlink.Attrs(a) {
			switch typ {
			case unix.NFTA_RULE_CHAIN:
				r.Chain = toText(v)
			case unix.NFTA_RULE_HANDLE:
				r.Handle = toU64(v)
			case unix.NFTA_RULE_USERDATA:
				r.Tag = parseTag(v)
			}
		}
		rules = append(rules, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the rules of table %s %s: %w", t.Family, t.Name, err)
	}
	return rules, nil
}

func parseTag(b []byte) uint64 {
	for len(b) >= 2 {
		typ, n := b[0], int(b[1])
		if n > len(b)-2 {
			break
		}
		if typ == ruleTag {
			return toU64(b[2 : 2+n])
		}
		b = b[2+n:]
	}
	return 0
}

// SetInfo is the kernel's description of a set.
type SetInfo struct {
	Name           string
	Flags          uint32
	KeyID, DataID  uint32
	KeyLen, Length uint32
	// Count is the number of elements; -1 if the kernel (before 6.15) does not report
	// it.
	Count int
}

const setCount = 20 // NFTA_SET_COUNT, kernel 6.15

// Matches reports whether i describes the same set.
func (s *Set) Matches(i SetInfo) bool {
	want := SetInfo{Name: s.Name, Flags: s.flags(), KeyID: s.Key.id(), KeyLen: uint32(s.Key.Len())}
	if s.isMap() {
		want.DataID, want.Length = s.Data.id(), uint32(s.Data.Len())
	}
	i.Count = 0
	return want == i
}

// Sets reads a table's named sets.
func (c *Conn) Sets(ctx context.Context, t Table) ([]SetInfo, error) {
	var sets []SetInfo
	filter := attrs(nil).text(unix.NFTA_SET_TABLE, t.Name)
	err := c.dump(ctx, t.Family, unix.NFT_MSG_GETSET, filter, func(a attrs) error {
		s := SetInfo{Count: -1}
		for typ, v := range nfnetlink.Attrs(a) {
			switch typ {
			case unix.NFTA_SET_NAME:
				s.Name = toText(v)
			case unix.NFTA_SET_FLAGS:
				s.Flags = toU32(v)
			case unix.NFTA_SET_KEY_TYPE:
				s.KeyID = toU32(v)
			case unix.NFTA_SET_KEY_LEN:
				s.KeyLen = toU32(v)
			case unix.NFTA_SET_DATA_TYPE:
				s.DataID = toU32(v)
			case unix.NFTA_SET_DATA_LEN:
				s.Length = toU32(v)
			case setCount:
				s.Count = int(toU32(v))
			}
		}
		if s.Flags&unix.NFT_SET_ANONYMOUS == 0 {
			sets = append(sets, s)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the sets of table %s %s: %w", t.Family, t.Name, err)
	}
	return sets, nil
}

// Elements dumps a set and calls f for each element, which is valid until f returns.
func (c *Conn) Elements(ctx context.Context, t Table, set string, f func(*Element) error) error {
	filter := attrs(nil).text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name).text(unix.NFTA_SET_ELEM_LIST_SET, set)
	if err := c.dump(ctx, t.Family, unix.NFT_MSG_GETSETELEM, filter, elementReader(f)); err != nil {
		return fmt.Errorf("reading the elements of %s in table %s %s: %w", set, t.Family, t.Name, err)
	}
	return nil
}

// Element reads the element with the key of e, and fills in the rest of e.
func (c *Conn) Element(ctx context.Context, t Table, set string, e *Element) error {
	found := false
	err := c.Lookup(ctx, t, set, []Element{*e}, func(_ int, got *Element) error {
		if found = got != nil; !found {
			return nil
		}
		e.Packets, e.Bytes, e.Expires, e.Data = got.Packets, got.Bytes, got.Expires, slices.Clone(got.Data)
		if got.Verdict != nil {
			v := *got.Verdict
			e.Verdict = &v
		}
		return nil
	})
	if err == nil && !found {
		return fmt.Errorf("reading an element of %s in table %s %s: %w", set, t.Family, t.Name, unix.ENOENT)
	}
	return err
}

// lookupKeys is how many elements a request looks up. The kernel puts all answers into
// the receive buffer before the first can be read, and each takes a page or two of it:
// that many fit into the buffer of an unprivileged process.
const lookupKeys = 32

// Lookup reads the elements with some keys, and calls f with the index and the element
// of each, in order; nil if the set lacks it. Its time is proportional to the number of
// keys, whereas that of Elements grows with the square of the set's size, and it is not
// interrupted by other transactions. The element is valid until f returns.
func (c *Conn) Lookup(ctx context.Context, t Table, set string, keys []Element, f func(int, *Element) error) error {
	for at := 0; at < len(keys); {
		end := min(at+lookupKeys, len(keys))
		req := attrs(nil).text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name).text(unix.NFTA_SET_ELEM_LIST_SET, set)
		req, list := req.open(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for i := at; i < end; i++ {
			req = req.element(&Element{Key: keys[i].Key})
		}
		req.close(list)
		read := elementReader(func(e *Element) error {
			at++
			return f(at-1, e)
		})
		err := c.request(ctx, t.Family, unix.NFT_MSG_GETSETELEM, req, read)
		if errors.Is(err, unix.ENOENT) && at < end {
			// The kernel stops at the first that is missing.
			at++
			err = f(at-1, nil)
		}
		if err != nil {
			return fmt.Errorf("reading an element of %s in table %s %s: %w", set, t.Family, t.Name, err)
		}
	}
	return nil
}

func elementReader(f func(*Element) error) func(attrs) error {
	var e Element
	var v Verdict
	return func(a attrs) error {
		for typ, list := range nfnetlink.Attrs(a) {
			if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, b := range nfnetlink.Attrs(list) {
				if err := parseElement(b, &e, &v); err != nil {
					return err
				}
				if err := f(&e); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func parseElement(b []byte, e *Element, verdict *Verdict) error {
	*e = Element{}
	for typ, v := range nfnetlink.Attrs(b) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = parseValue(v)
		case unix.NFTA_SET_ELEM_DATA:
			if e.Data = parseValue(v); e.Data == nil && parseVerdict(v, verdict) {
				e.Verdict = verdict
			}
		case unix.NFTA_SET_ELEM_EXPIRATION:
			e.Expires = time.Duration(toU64(v)) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPR:
			e.Packets, e.Bytes = parseCounter(v)
		}
	}
	if e.Key == nil {
		return fmt.Errorf("element without a key: %w", nfnetlink.ErrMalformed)
	}
	return nil
}

func parseValue(b []byte) []byte {
	for typ, v := range nfnetlink.Attrs(b) {
		if typ == unix.NFTA_DATA_VALUE {
			return v
		}
	}
	return nil
}

func parseVerdict(b []byte, into *Verdict) bool {
	for typ, v := range nfnetlink.Attrs(b) {
		if typ != unix.NFTA_DATA_VERDICT {
			continue
		}
		*into = Verdict{}
		for typ, v := range nfnetlink.Attrs(v) {
			switch typ {
			case unix.NFTA_VERDICT_CODE:
				into.Code = int32(toU32(v))
			case unix.NFTA_VERDICT_CHAIN:
				into.Chain = toText(v)
			}
		}
		return true
	}
	return false
}

func parseCounter(b []byte) (packets, bytes uint64) {
	for typ, v := range nfnetlink.Attrs(b) {
		if typ != unix.NFTA_EXPR_DATA {
			continue
		}
		for typ, v := range nfnetlink.Attrs(v) {
			switch typ {
			case unix.NFTA_COUNTER_PACKETS:
				packets = toU64(v)
			case unix.NFTA_COUNTER_BYTES:
				bytes = toU64(v)
			}
		}
	}
	return packets, bytes
}
