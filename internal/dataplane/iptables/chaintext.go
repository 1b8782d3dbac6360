package iptables

import (
	"slices"

	"sluice/internal/kernel/iptables"
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
func (text *chainText) own(keys ...plan.Key) {
	text.owners = append(text.owners, ownership{text.Rules, keys})
}

func (text *chainText) add(r rule) {
	if text.comment != "" {
		r.comment, text.comment = text.comment, ""
	}
	text.Text = append(append(text.Text, "-A "...), text.Name...)
	text.Text = append(r.appendTo(text.Text), '\n')
	text.Rules++
	if to, ok := r.leadsTo(); ok && !slices.Contains(text.leads, to) {
		text.leads = append(text.leads, to)
	}
}

// ownersOf are the frontends that a rule is for.
func (text *chainText) ownersOf(rule int) []plan.Key {
	var keys []plan.Key
	for _, o := range text.owners {
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
	text := &chainText{Chain: iptables.Chain{Name: name}}
	if old, again := out.byName[name]; again {
		*old = *text
		return old
	}
	out.list = append(out.list, text)
	out.byName[name] = text
	return text
}

// drop says that a chain is no longer needed.
func (out *chainTexts) drop(name string) {
	out.dropped[name] = true
	if text, there := out.byName[name]; there {
		delete(out.byName, name)
		out.list = slices.DeleteFunc(out.list, func(other *chainText) bool { return other == text })
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
