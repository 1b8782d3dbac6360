//go:build linux

package xtables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Table is the contents of a table.
type Table struct {
	// Builtin are the built-in chains, and whether their policy is DROP. Chains are
	// the others.
	Builtin map[string]bool
	Chains  []string
	Rules   []Rule
}

// Rule is a rule, as far as it is parsed.
type Rule struct {
	Chain string // the chain that it is in
	// AnyPacket says that it matches any addresses, interfaces and protocol, and Header which
	// ones otherwise. Matches are its further conditions.
	AnyPacket bool
	Header    Header
	Matches   []Extension
	// Accepts, Drops and Returns say that it accepts packets, drops them, or leaves the
	// chain. Jump is the chain that it leads into, by goto if Goto is set, and Target its
	// target otherwise.
	Accepts, Drops, Returns bool
	Jump                    string
	Goto                    bool
	Target                  Extension
}

// Header is which addresses, interfaces and protocol a rule is for.
type Header struct {
	// Source and Destination are compared in the bits of their masks.
	Source, SourceMask, Destination, DestinationMask []byte
	// In and Out are names of interfaces, "" for any. One that ends with + is a prefix.
	In, Out  string
	Protocol uint16 // 0 for any
	// Inverted are the conditions that must not hold, and Other says that there are more.
	Inverted Inversion
	Other    bool
}

// Inversion is a set of conditions of a Header: IPT_INV_... of linux/netfilter_ipv4/ip_tables.h,
// which are the same for IPv6.
type Inversion uint8

// The conditions.
const (
	In          Inversion = 0x01
	Out         Inversion = 0x02
	Source      Inversion = 0x08
	Destination Inversion = 0x10
	Protocol    Inversion = 0x40
)

// interfaceLen is the length of a name of an interface, and of the mask of the bytes that count.
const interfaceLen = 16

// header parses struct ipt_ip or ip6t_ip6.
func (f *Family) header(b []byte) (h Header, isGoto bool) {
	n := f.addressLen
	h.Source, h.Destination, h.SourceMask, h.DestinationMask = b[:n], b[n:2*n], b[2*n:3*n], b[3*n:4*n]
	b = b[4*n:]
	name := func(b []byte) string {
		name := text(b[:interfaceLen])
		if mask := b[2*interfaceLen:][:interfaceLen]; name != "" && mask[len(name)] == 0 { // the end does not count
			name += "+"
		}
		return name
	}
	h.In, h.Out = name(b), name(b[interfaceLen:])
	b = b[4*interfaceLen:]
	h.Protocol = binary.NativeEndian.Uint16(b)
	flags := b[f.flagsAt]
	h.Inverted, h.Other = Inversion(b[f.flagsAt+1]), flags&f.otherFlags != 0
	return h, flags&f.gotoFlag != 0
}

// Extension is a match or a target of iptables.
type Extension struct {
	Name     string
	Revision uint8
	Info     []byte
}

// BuiltinChains are the names of the built-in chains, by the number of their hook.
var BuiltinChains = [5]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// Read reads a table.
func (s *Socket) Read(table string) (*Table, error) {
	info, blob, err := s.read(table)
	if err != nil {
		return nil, err
	}
	t, err := s.parse(info, blob)
	if err != nil {
		return nil, fmt.Errorf("read table %s of %s: %w", table, s.Command, err)
	}
	return t, nil
}

// The verdicts of a standard target (linux/netfilter/x_tables.h). Those from 0 on are
// offsets to continue at.
const (
	verdictDrop   int32 = -1
	verdictAccept int32 = -2
	verdictReturn int32 = -5
	verdictNone   int32 = -1 << 31 // of another target
)

// Length of struct xt_entry_match and xt_entry_target, and offsets in them.
const (
	extensionLen = 32
	nameAt       = 2
	revisionAt   = 31
)

var errMalformed = errors.New("it is not laid out as expected")

// entry is a rule in the kernel's layout.
type entry struct {
	rule    Rule
	verdict int32 // of a standard target
	next    int   // offset of the next one
}

// errorTarget is the target of an entry that begins a chain, with the chain's
// name as its data, and of the last one of a table.
const errorTarget = "ERROR"

// parse parses the entries of a table: those of the built-in chains, each of which ends
// with its policy, and then those of the others, which end with a return.
func (f *Family) parse(info Info, blob []byte) (*Table, error) {
	t := &Table{Builtin: map[string]bool{}}
	starts := map[int]string{} // chains by the offset of their first rule
	var entries []entry
	chain := ""
	for at := 0; at < len(blob); {
		e, err := f.entry(blob, at)
		if err != nil {
			return nil, err
		}
		if e.rule.Target.Name == errorTarget {
			if len(t.Chains) > 0 && len(entries) > 0 {
				entries = entries[:len(entries)-1]
			}
			if e.next < len(blob) {
				chain = text(e.rule.Target.Info)
				t.Chains = append(t.Chains, chain)
				starts[e.next] = chain
			}
			at = e.next
			continue
		}
		if name := hookAt(info, info.Hooks, at); name != "" {
			chain = name
		}
		e.rule.Chain = chain
		if name := hookAt(info, info.Underflows, at); name != "" {
			t.Builtin[name] = e.verdict == verdictDrop
		} else {
			entries = append(entries, e)
		}
		at = e.next
	}
	for _, e := range entries {
		if e.verdict >= 0 && int(e.verdict) != e.next { // a rule without a target leads to the next one
			e.rule.Jump = starts[int(e.verdict)]
		}
		t.Rules = append(t.Rules, e.rule)
	}
	return t, nil
}

// hookAt is the built-in chain that has one of these offsets, "" for none.
func hookAt(info Info, offsets [5]uint32, at int) string {
	for hook, name := range BuiltinChains {
		if info.ValidHooks&(1<<hook) != 0 && int(offsets[hook]) == at {
			return name
		}
	}
	return ""
}

// entry parses struct ipt_entry or ip6t_entry with its matches and its target.
func (f *Family) entry(blob []byte, at int) (e entry, err error) {
	header := f.entryLen
	if len(blob)-at < header {
		return e, errMalformed
	}
	b := blob[at:]
	target, next := int(binary.NativeEndian.Uint16(b[f.offsetsAt:])), int(binary.NativeEndian.Uint16(b[f.offsetsAt+2:]))
	if target < header || next < target+extensionLen || next > len(b) {
		return e, errMalformed
	}
	// The conditions on addresses and so on are all zero if there are none.
	e.rule.AnyPacket = len(bytes.Trim(b[:f.offsetsAt-4], "\x00")) == 0
	e.rule.Header, e.rule.Goto = f.header(b)
	for m := header; m < target; {
		size := int(binary.NativeEndian.Uint16(b[m:]))
		if size < extensionLen || m+size > target {
			return e, errMalformed
		}
		e.rule.Matches = append(e.rule.Matches, extension(b[m:m+size]))
		m += size
	}
	e.next, e.rule.Target = at+next, extension(b[target:next])
	e.verdict = verdictNone
	if t := e.rule.Target; t.Name == "" && len(t.Info) >= 4 {
		e.verdict = int32(binary.NativeEndian.Uint32(t.Info))
		e.rule.Target = Extension{}
		switch e.verdict {
		case verdictAccept:
			e.rule.Accepts = true
		case verdictDrop:
			e.rule.Drops = true
		case verdictReturn:
			e.rule.Returns = true
		default:
			if e.verdict < 0 {
				e.rule.Target.Name = "QUEUE"
			}
		}
	}
	return e, nil
}

func extension(b []byte) Extension {
	return Extension{text(b[nameAt:revisionAt]), b[revisionAt], b[extensionLen:]}
}

// text is a string up to its terminating zero.
func text(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}

// ReadAll reads those of the named tables that exist.
func (f *Family) ReadAll(tables ...string) (out map[string]*Table, err error) {
	present, err := f.Tables()
	if err != nil || len(present) == 0 {
		return nil, err
	}
	socket, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	out = map[string]*Table{}
	for _, table := range tables {
		if !slices.Contains(present, table) {
			continue
		}
		if out[table], err = socket.Read(table); err != nil {
			return nil, err
		}
	}
	return out, nil
}
