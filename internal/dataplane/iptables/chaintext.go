package iptables

import (
	"slices"

	"sluice/internal/iptables"
	"sluice/internal/plan"
)

// chainText is a chain being written, with the frontends that its rules are for.
type chainText struct {
	iptables.Chain
	// owners are the frontends of rules, from a rule on.
	owners []ownership
	// leads are chains of ours that rules jump to.
	leads []string
	// comment is put into the next rule only: it describes the rules from there on.
	comment string
}

type ownership struct {
	from int
	keys []plan.Key
}

// own sets the frontends that the rules from here on are for.
func (c *chainText) own(keys ...plan.Key) { c.owners = append(c.owners, ownership{c.Rules, keys}) }

func (c *chainText) add(r rule) {
	if c.comment != "" {
		r.comment, c.comment = c.comment, ""
	}
	c.Text = append(append(c.Text, "-A "...), c.Name...)
	c.Text = append(r.appendTo(c.Text), '\n')
	c.Rules++
	if to, ok := r.leadsTo(); ok && !slices.Contains(c.leads, to) {
		c.leads = append(c.leads, to)
	}
}

// ownersOf are the frontends that a rule is for.
func (c *chainText) ownersOf(rule int) []plan.Key {
	var keys []plan.Key
	for _, o := range c.owners {
		if o.from <= rule {
			keys = o.keys
		}
	}
	return keys
}

// chainTexts are the chains of one table that are to be written, and the names of
// those that are no longer needed.
type chainTexts struct {
	list    []*chainText
	byName  map[string]*chainText
	dropped map[string]bool
}

func newChainTexts() *chainTexts {
	return &chainTexts{byName: map[string]*chainText{}, dropped: map[string]bool{}}
}

// begin starts the text of a chain, and discards an earlier one.
func (out *chainTexts) begin(name string) *chainText {
	delete(out.dropped, name)
	c := &chainText{Chain: iptables.Chain{Name: name}}
	if old, again := out.byName[name]; again {
		*old = *c
		return old
	}
	out.list = append(out.list, c)
	out.byName[name] = c
	return c
}

// drop says that a chain is no longer needed.
func (out *chainTexts) drop(name string) {
	out.dropped[name] = true
	if c, there := out.byName[name]; there {
		delete(out.byName, name)
		out.list = slices.DeleteFunc(out.list, func(other *chainText) bool { return other == c })
	}
}

// ownersAt are the frontends that a line of an input made from these chains is for.
func (out *chainTexts) ownersAt(in *iptables.Input, line int) []plan.Key {
	chain, rule := in.RuleAt(line)
	if chain == nil {
		return nil
	}
	return out.byName[chain.Name].ownersOf(rule)
}
