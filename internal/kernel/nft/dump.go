//go:build linux

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

// dump does the same for all objects of a kind, which what names in errors. If the ruleset
// changes meanwhile, the error is ErrInterrupted.
func (c *Conn) dump(ctx context.Context, family Family, msg uint16, filter attrs, what string, f func(attrs) error) error {
	if err := c.nl.Dump(ctx, message(family, msg, filter), withAttrs(f)); err != nil {
		return fmt.Errorf("reading %s: %w", what, err)
	}
	return nil
}

func list[T any](ctx context.Context, c *Conn, family Family, msg uint16, filter attrs, what string, read func(attrs) (T, bool)) (all []T, err error) {
	err = c.dump(ctx, family, msg, filter, what, func(a attrs) error {
		if object, keep := read(a); keep {
			all = append(all, object)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func message(family Family, msg uint16, body attrs) []byte {
	return append(nfnetlink.AppendNetfilterHeader(nil, nftType(msg), 0, uint8(family), 0), body...)
}

func withAttrs(f func(attrs) error) func([]byte) error {
	return func(payload []byte) error { return f(attrs(payload[nfnetlink.GenHeaderLen:])) }
}

// in names objects of a table in errors.
func (t Table) in(what string) string { return fmt.Sprintf("%s table %s %s", what, t.Family, t.Name) }

// Generation returns the number of the ruleset's current version. Each transaction of
// any program in the network namespace increments it.
func (c *Conn) Generation(ctx context.Context) (uint32, error) {
	var gen uint32
	err := c.request(ctx, 0, unix.NFT_MSG_GETGEN, nil, func(a attrs) error {
		gen = a.getU32(unix.NFTA_GEN_ID)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("reading the ruleset's generation: %w", err)
	}
	return gen, nil
}

// Tables reads a family's tables.
func (c *Conn) Tables(ctx context.Context, family Family) ([]Table, error) {
	what := fmt.Sprintf("the tables of family %s", family)
	return list(ctx, c, family, unix.NFT_MSG_GETTABLE, nil, what, func(a attrs) (Table, bool) {
		dormant := a.getU32(unix.NFTA_TABLE_FLAGS)&tableDormant != 0
		return Table{Family: family, Name: a.getText(unix.NFTA_TABLE_NAME), Dormant: dormant}, true
	})
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
	all, err := c.chains(ctx, t.Family, t.in("the chains of"), func(table string, _ Chain) bool { return table == t.Name })
	return all[t.Name], err
}

// BaseChains reads the base chains of all tables of a family, by table.
func (c *Conn) BaseChains(ctx context.Context, family Family) (map[string][]Chain, error) {
	what := fmt.Sprintf("the base chains of family %s", family)
	return c.chains(ctx, family, what, func(_ string, ch Chain) bool { return ch.Type != "" })
}

// chains reads chains by table: the kernel dumps those of all tables together.
func (c *Conn) chains(ctx context.Context, family Family, what string, keep func(table string, ch Chain) bool) (map[string][]Chain, error) {
	byTable := map[string][]Chain{}
	err := c.dump(ctx, family, unix.NFT_MSG_GETCHAIN, nil, what, func(a attrs) error {
		table, hook, policy := a.getText(unix.NFTA_CHAIN_TABLE), a.get(unix.NFTA_CHAIN_HOOK), a.get(unix.NFTA_CHAIN_POLICY)
		ch := Chain{
			Name: a.getText(unix.NFTA_CHAIN_NAME), Type: a.getText(unix.NFTA_CHAIN_TYPE),
			Hook: hook.getU32(unix.NFTA_HOOK_HOOKNUM), Priority: int32(hook.getU32(unix.NFTA_HOOK_PRIORITY)), Device: hook.getText(unix.NFTA_HOOK_DEV),
			Drops: policy != nil && toU32(policy) == uint32(DropCode),
		}
		if keep(table, ch) {
			byTable[table] = append(byTable[table], ch)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return byTable, nil
}

// Rules reads a table's rules, in order, without their expressions.
func (c *Conn) Rules(ctx context.Context, t Table) ([]Rule, error) {
	return listRules(ctx, c, t, "", t.in("the rules of"), func(a attrs) (Rule, bool) {
		return Rule{Chain: a.getText(unix.NFTA_RULE_CHAIN), Handle: a.getU64(unix.NFTA_RULE_HANDLE),
			Tag: parseTag(a.get(unix.NFTA_RULE_USERDATA))}, true
	})
}

// listRules is list for the rules of a table, or of one of its chains.
func listRules[T any](ctx context.Context, c *Conn, t Table, chain, what string, read func(attrs) (T, bool)) ([]T, error) {
	filter := attrs(nil).text(unix.NFTA_RULE_TABLE, t.Name)
	if chain != "" {
		filter = filter.text(unix.NFTA_RULE_CHAIN, chain)
	}
	return list(ctx, c, t.Family, unix.NFT_MSG_GETRULE, filter, what, read)
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
	// Counted says that elements have counters.
	Counted bool
	// Count is the number of elements; -1 if the kernel (before 6.15) does not report
	// it.
	Count int
}

const setCount = 20 // NFTA_SET_COUNT, kernel 6.15

// Matches reports whether i describes the same set.
func (s *Set) Matches(i SetInfo) bool {
	want := SetInfo{Name: s.Name, Flags: s.flags(), KeyID: s.Key.id(), KeyLen: uint32(s.Key.Len()), Counted: s.Counter}
	if s.isMap() {
		want.DataID, want.Length = s.Data.id(), uint32(s.Data.Len())
	}
	i.Count = 0
	return want == i
}

// Sets reads a table's named sets.
func (c *Conn) Sets(ctx context.Context, t Table) ([]SetInfo, error) {
	all, err := c.AllSets(ctx, t)
	return slices.DeleteFunc(all, func(s SetInfo) bool { return s.Flags&unix.NFT_SET_ANONYMOUS != 0 }), err
}

// AllSets also reads those that are part of a rule.
func (c *Conn) AllSets(ctx context.Context, t Table) ([]SetInfo, error) {
	filter := attrs(nil).text(unix.NFTA_SET_TABLE, t.Name)
	return list(ctx, c, t.Family, unix.NFT_MSG_GETSET, filter, t.in("the sets of"), func(a attrs) (SetInfo, bool) {
		s := SetInfo{
			Name: a.getText(unix.NFTA_SET_NAME), Flags: a.getU32(unix.NFTA_SET_FLAGS), Count: -1,
			KeyID: a.getU32(unix.NFTA_SET_KEY_TYPE), KeyLen: a.getU32(unix.NFTA_SET_KEY_LEN),
			DataID: a.getU32(unix.NFTA_SET_DATA_TYPE), Length: a.getU32(unix.NFTA_SET_DATA_LEN),
			Counted: a.get(setExpr) != nil,
		}
		if count := a.get(setCount); count != nil {
			s.Count = int(toU32(count))
		}
		return s, true
	})
}

// Elements dumps a set and calls f for each element, which is valid until f returns.
func (c *Conn) Elements(ctx context.Context, t Table, set string, f func(*Element) error) error {
	filter := attrs(nil).text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name).text(unix.NFTA_SET_ELEM_LIST_SET, set)
	return c.dump(ctx, t.Family, unix.NFT_MSG_GETSETELEM, filter, t.in("the elements of "+set+" in"), elementReader(f))
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
		for _, b := range nfnetlink.Attrs(a.get(unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			if err := parseElement(b, &e, &v); err != nil {
				return err
			}
			if err := f(&e); err != nil {
				return err
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

func parseValue(b attrs) []byte { return b.get(unix.NFTA_DATA_VALUE) }

func parseVerdict(b attrs, into *Verdict) bool {
	v := b.get(unix.NFTA_DATA_VERDICT)
	if v == nil {
		return false
	}
	*into = Verdict{Code: int32(v.getU32(unix.NFTA_VERDICT_CODE)), Chain: v.getText(unix.NFTA_VERDICT_CHAIN)}
	return true
}

func parseCounter(b attrs) (packets, bytes uint64) {
	data := b.get(unix.NFTA_EXPR_DATA)
	return data.getU64(unix.NFTA_COUNTER_PACKETS), data.getU64(unix.NFTA_COUNTER_BYTES)
}
