package iptables

import (
	"maps"
	"slices"

	"sluice/internal/kernel/iptables"
	"sluice/internal/plan"
)

// chainText is a chain being written.
type chainText struct {
	iptables.Chain
	// own are the frontends that the next rules are for, and owners those of each rule.
	own    []plan.Key
	owners [][]plan.Key
	// jumps are chains of ours that rules jump to.
	jumps []string
	// comment is put into the next rule only: it describes the rules from there on.
	comment string
}

func (text *chainText) add(r rule) {
	if text.comment != "" {
		r.comment, text.comment = text.comment, ""
	}
	text.Text = append(append(text.Text, "-A "...), text.Name...)
	text.Text = append(r.appendTo(text.Text), '\n')
	text.Rules++
	text.owners = append(text.owners, text.own)
	if to, ok := r.jumpTarget(); ok && !slices.Contains(text.jumps, to) {
		text.jumps = append(text.jumps, to)
	}
}

// usualRule is how many bytes most rules have.
const usualRule = 120

// grow makes room for so many more rules.
func (text *chainText) grow(rules int) {
	text.Text = slices.Grow(text.Text, rules*usualRule)
	text.owners = slices.Grow(text.owners, rules)
}

// chainTexts are the chains of one table that are to be written, by name; nil for those
// that are no longer needed.
type chainTexts map[string]*chainText

// begin starts the text of a chain, and discards an earlier one.
func (out chainTexts) begin(name string) *chainText {
	out[name] = &chainText{Chain: iptables.Chain{Name: name}}
	return out[name]
}

// sorted are the chains to be written.
func (out chainTexts) sorted() []*chainText {
	var list []*chainText
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if text := out[name]; text != nil {
			list = append(list, text)
		}
	}
	return list
}

// ownersAt are the frontends that a line of an input made from these chains is for.
func (out chainTexts) ownersAt(in *iptables.Input, line int) []plan.Key {
	chain, rule := in.RuleAt(line)
	if chain == nil {
		return nil
	}
	return out[chain.Name].owners[rule]
}
