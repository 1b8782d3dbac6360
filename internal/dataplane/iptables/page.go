package iptables

import (
	"hash/maphash"
	"slices"

	"sluice/internal/plan"
)

// page is the text of a chain's rules.
type page struct {
	chain string
	text  []byte
	rules int
	// owners say whose the rules are, from a rule on.
	owners []ownership
	// leads are the chains of ours that rules lead to.
	leads []string
	// comment goes into the next rule, and into that only: it says what the
	// rules from there on are for.
	comment string
}

type ownership struct {
	from int
	keys []plan.Key
}

// own says whose the rules from here on are.
func (p *page) own(keys ...plan.Key) { p.owners = append(p.owners, ownership{p.rules, keys}) }

func (p *page) add(r rule) {
	if p.comment != "" {
		r.comment, p.comment = p.comment, ""
	}
	p.text = append(append(p.text, "-A "...), p.chain...)
	p.text = append(r.appendTo(p.text), '\n')
	p.rules++
	if to, ok := r.leadsTo(); ok && !slices.Contains(p.leads, to) {
		p.leads = append(p.leads, to)
	}
}

// ownersOf are the frontends that a rule is there for.
func (p *page) ownersOf(rule int) []plan.Key {
	var keys []plan.Key
	for _, o := range p.owners {
		if o.from <= rule {
			keys = o.keys
		}
	}
	return keys
}

// print is by what a chain's rules are known.
type print struct {
	hash  uint64
	rules int
}

// hashSeed is of this process: prints are not kept anywhere else.
var hashSeed = maphash.MakeSeed()

func (p *page) print() print { return print{maphash.Bytes(hashSeed, p.text), p.rules} }

// pages are chains of one table that are to be written, and names of those that
// are no longer wanted.
type pages struct {
	list    []*page
	byName  map[string]*page
	dropped map[string]bool
}

func newPages() *pages { return &pages{byName: map[string]*page{}, dropped: map[string]bool{}} }

// begin starts the text of a chain, anew if there is one.
func (s *pages) begin(chain string) *page {
	delete(s.dropped, chain)
	p := &page{chain: chain}
	if old, again := s.byName[chain]; again {
		*old = *p
		return old
	}
	s.list = append(s.list, p)
	s.byName[chain] = p
	return p
}

// drop says that a chain is no longer wanted.
func (s *pages) drop(chain string) {
	s.dropped[chain] = true
	if p, there := s.byName[chain]; there {
		delete(s.byName, chain)
		s.list = slices.DeleteFunc(s.list, func(q *page) bool { return q == p })
	}
}
