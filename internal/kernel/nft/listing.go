//go:build linux

package nft

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// Listing writes tables as nft(8) lists and loads them.
type Listing struct {
	w      *bufio.Writer
	inside bool // the table is not empty
}

// NewListing returns a Listing that is written to w.
func NewListing(w io.Writer) *Listing { return &Listing{w: bufio.NewWriter(w)} }

// Flush writes what is buffered, and returns the first error.
func (l *Listing) Flush() error { return l.w.Flush() }

func (l *Listing) line(depth int, parts ...string) {
	for range depth {
		l.w.WriteByte('\t')
	}
	for _, p := range parts {
		l.w.WriteString(p)
	}
	l.w.WriteByte('\n')
}

// Table writes a table, with the contents that content writes.
func (l *Listing) Table(t Table, content func()) {
	l.line(0, "table ", t.Family.String(), " ", t.Name, " {")
	if t.Comment != "" {
		l.line(1, `comment "`, t.Comment, `"`)
	}
	l.inside = false
	content()
	l.line(0, "}")
}

// block writes the start of a set or chain.
func (l *Listing) block(noun, name string) {
	if l.inside {
		l.line(0)
	}
	l.inside = true
	l.line(1, noun, " ", name, " {")
}

// Set writes a set or map with its elements.
func (l *Listing) Set(s *Set, elements []Element) {
	noun := "set"
	if s.isMap() {
		noun = "map"
	}
	l.block(noun, s.Name)
	l.line(2, s.typeText())
	if s.Size > 0 {
		l.line(2, fmt.Sprintf("size %d", s.Size))
	}
	if s.Dynamic {
		l.line(2, "flags dynamic,timeout")
	}
	if s.Counter {
		l.line(2, "counter")
	}
	l.elements(s, elements)
	l.line(1, "}")
}

// elements writes one element per line.
func (l *Listing) elements(s *Set, elements []Element) {
	for i := range elements {
		before, after := "\t\t\t     ", ","
		if i == 0 {
			before = "\t\telements = { "
		}
		if i == len(elements)-1 {
			after = " }"
		}
		l.line(0, before, s.Text(&elements[i]), after)
	}
}

func (s *Set) typeText() string {
	text := "type "
	if s.Key.Typeof {
		text = "typeof "
	}
	text += s.Key.text()
	if s.isMap() {
		text += " : " + s.Data.text()
	}
	return text
}

// Chain writes a chain with its rules.
func (l *Listing) Chain(c Chain, rules []Rule) {
	l.block("chain", c.Name)
	if c.Type != "" {
		l.line(2, fmt.Sprintf("type %s hook %s priority %s; policy accept;", c.Type, hooks[c.Hook], c.priorityText()))
	}
	for _, r := range rules {
		text := r.Exprs.String()
		if r.Protocols {
			text = protocolsText + " " + text
		}
		l.line(2, text)
	}
	l.line(1, "}")
}

// hooks are nft(8)'s names.
var hooks = map[uint32]string{
	unix.NF_INET_PRE_ROUTING:  "prerouting",
	unix.NF_INET_LOCAL_IN:     "input",
	unix.NF_INET_FORWARD:      "forward",
	unix.NF_INET_LOCAL_OUT:    "output",
	unix.NF_INET_POST_ROUTING: "postrouting",
}

// priorityText returns the priority as nft(8) lists it: relative to a named one that is
// near, if the hook has one.
func (c Chain) priorityText() string {
	names := map[int32]string{0: "filter"}
	switch c.Hook {
	case unix.NF_INET_PRE_ROUTING:
		names[-100] = "dstnat"
	case unix.NF_INET_POST_ROUTING:
		names[100] = "srcnat"
	}
	const near = 10
	for p, name := range names {
		switch distance := c.Priority - p; {
		case distance == 0:
			return name
		case distance > 0 && distance <= near:
			return fmt.Sprintf("%s + %d", name, distance)
		case distance < 0 && -distance <= near:
			return fmt.Sprintf("%s - %d", name, -distance)
		}
	}
	return fmt.Sprint(c.Priority)
}

// Jump is a rule that leads into another chain, by jump or goto.
type Jump struct {
	Chain  string // that the rule is in
	Handle uint64
	Target string
}

// Jumps reads those rules of a table of any program that lead into another chain.
func (c *Conn) Jumps(ctx context.Context, t Table) ([]Jump, error) {
	return listRules(ctx, c, t, "", t.in("the jumps of"), func(a attrs) (Jump, bool) {
		target := parseTarget(a.get(unix.NFTA_RULE_EXPRESSIONS))
		return Jump{a.getText(unix.NFTA_RULE_CHAIN), a.getU64(unix.NFTA_RULE_HANDLE), target}, target != ""
	})
}

// parseTarget returns the chain that the expressions lead into, or "".
func parseTarget(exprs []byte) string {
	for _, expr := range nfnetlink.Attrs(exprs) {
		if e := parseExpr(expr); e.Verdict != nil {
			return e.Verdict.Chain
		}
	}
	return ""
}

// DeleteRule removes one rule.
func (b *Batch) DeleteRule(t Table, chain string, handle uint64) {
	b.message(t, unix.NFT_MSG_DELRULE, 0, 0, func(a attrs) attrs {
		a = a.text(unix.NFTA_RULE_TABLE, t.Name).text(unix.NFTA_RULE_CHAIN, chain)
		return a.u64(unix.NFTA_RULE_HANDLE, handle)
	})
}
