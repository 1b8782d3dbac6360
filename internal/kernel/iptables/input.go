//go:build linux

package iptables

import (
	"hash/maphash"
	"io"
	"net"
	"slices"
)

// Chain is the text of a chain's rules, a line with -A for each.
type Chain struct {
	Name  string
	Text  []byte
	Rules int
}

// Fingerprint is equal to that in a Listing if the rules are listed as written.
func (c *Chain) Fingerprint() Fingerprint {
	return Fingerprint{maphash.Bytes(hashSeed, c.Text), c.Rules}
}

// Input is a change of one table for iptables-restore, made atomically.
type Input struct {
	Table string
	// Delete and Insert are rules without their -A, to be deleted and to be put, in
	// this order, at the top of chains that exist.
	Delete, Insert []string
	// Chains are created if necessary, and get these rules only.
	Chains []*Chain
	// Remove are chains to be removed. They are flushed before, unless Flushed.
	Remove  []string
	Flushed bool
}

// Empty reports whether there is nothing to do.
func (in *Input) Empty() bool {
	return len(in.Delete)+len(in.Insert)+len(in.Chains)+len(in.Remove) == 0
}

// Rules is how many rules the chains have.
func (in *Input) Rules() int {
	n := 0
	for _, c := range in.Chains {
		n += c.Rules
	}
	return n
}

// Reader reads the text. The rules of chains, which can be large, are not copied.
func (in *Input) Reader() io.Reader {
	text := &net.Buffers{}
	line := func(parts ...string) {
		for _, part := range parts {
			*text = append(*text, []byte(part))
		}
		*text = append(*text, []byte("\n"))
	}
	if in.Empty() {
		return text
	}
	line("*", in.Table)
	// Declaring a chain creates it if necessary, and flushes it.
	for _, c := range in.Chains {
		line(":", c.Name, " - [0:0]")
	}
	if !in.Flushed {
		for _, name := range in.Remove {
			line(":", name, " - [0:0]")
		}
	}
	for _, rule := range in.Delete {
		line("-D ", rule)
	}
	for _, rule := range slices.Backward(in.Insert) {
		line("-I ", rule)
	}
	for _, c := range in.Chains {
		*text = append(*text, c.Text)
	}
	for _, name := range in.Remove {
		line("-X ", name)
	}
	line("COMMIT")
	return text
}

// RuleAt returns the chain, and the index of its rule, that a line of the text is;
// nil if the line is another.
func (in *Input) RuleAt(line int) (c *Chain, rule int) {
	rule = line - (2 + len(in.Chains) + len(in.Delete) + len(in.Insert))
	if !in.Flushed {
		rule -= len(in.Remove)
	}
	if rule < 0 {
		return nil, 0
	}
	for _, c := range in.Chains {
		if rule < c.Rules {
			return c, rule
		}
		rule -= c.Rules
	}
	return nil, 0
}
