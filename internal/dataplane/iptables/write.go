//go:build linux

package iptables

import (
	"context"
	"io"
	"maps"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/plan"
)

// flush writes the chains that are laid out and not in the kernel yet. Table nat is
// first: a frontend is refused only after it leads nowhere, and no longer once it
// leads somewhere.
func (c *commit) flush(ctx context.Context, s *familyState) error {
	s.layout()
	for _, t := range s.tables {
		out := s.out[t.Name]
		c.d.locked(func() { t.need(out) })
		if err := c.writeTable(ctx, t, out); err != nil {
			return err
		}
		s.out[t.Name] = chainTexts{}
	}
	return nil
}

// writeTable writes the chains of a table. If very many are new they are written in
// batches first, while no rule leads to them. Surplus chains are removed in the same
// input, or afterwards if there are very many or if that is refused: rules of others
// may lead to one.
func (c *commit) writeTable(ctx context.Context, t *table, out chainTexts) error {
	for _, in := range t.newChains(out, c.d.batch) {
		if err := c.attribute(out, in, c.restore(ctx, t, in)); err != nil {
			return err
		}
	}
	if len(t.removable()) <= c.d.batch {
		in := t.input(out, true)
		err := c.restore(ctx, t, in)
		if len(in.Remove) == 0 || !iptables.Refused(err) {
			return c.attribute(out, in, err)
		}
	}
	in := t.input(out, false)
	if err := c.attribute(out, in, c.restore(ctx, t, in)); err != nil {
		return err
	}
	return c.removeSurplus(ctx, t)
}

// removeSurplus flushes surplus chains and removes them, in batches. Those that
// rules of others lead to stay, empty, until others have written.
func (c *commit) removeSurplus(ctx context.Context, t *table) error {
	names := t.removable()
	for batch := range slices.Chunk(names, c.d.batch) {
		empty := chainTexts{}
		for _, name := range batch {
			empty.begin(name)
		}
		if err := c.restore(ctx, t, t.input(empty, false)); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(names, c.d.batch) {
		if err := c.removeEmpty(ctx, t, batch); err != nil {
			return err
		}
	}
	return nil
}

// removeEmpty removes empty chains, all but those that are in use, which it finds by
// bisection.
func (c *commit) removeEmpty(ctx context.Context, t *table, names []string) error {
	if len(names) == 0 {
		return nil
	}
	err := c.restore(ctx, t, &iptables.Input{Table: t.Name, Remove: names, Flushed: true})
	switch {
	case err == nil || !iptables.Refused(err):
		return err
	case len(names) == 1:
		c.giveUp(t, names[0], err)
		return nil
	}
	half := len(names) / 2
	if err := c.removeEmpty(ctx, t, names[:half]); err != nil {
		return err
	}
	return c.removeEmpty(ctx, t, names[half:])
}

// giveUp leaves a chain alone until others have written.
func (c *commit) giveUp(t *table, name string, err error) {
	c.d.logger.Info("A chain that is no longer used cannot be removed, another rule may jump to it",
		"table", t.String(), "chain", name, "reason", err.Error())
	c.d.locked(func() {
		delete(t.surplus, name)
		t.stuck[name] = true
	})
}

// restore runs iptables-restore, unless there is nothing to do, and updates what is
// known of the kernel.
func (c *commit) restore(ctx context.Context, t *table, in *iptables.Input) error {
	if in.Empty() {
		return nil
	}
	before, berr := c.d.monitor.Generation(ctx)
	if err := c.d.driver.Restore(ctx, t.Family, in.Reader()); err != nil {
		failures := c.d.failures
		if c.partial {
			failures = c.d.partialFailures
		}
		c.d.locked(func() { failures[t.Family]++ })
		return err
	}
	if log := c.d.logger.V(dataplane.LogElements); log.Enabled() {
		if text, err := io.ReadAll(in.Reader()); err == nil {
			log.Info("Rules written", "family", t.Family.String(), "table", t.Name, "input", string(text))
		}
	}
	entries := t.entries(in)
	after, aerr := c.d.monitor.Generation(ctx)
	c.d.locked(func() {
		t.done(in)
		foreign := &c.d.foreign
		foreign.checksums = nil
		if berr != nil || aerr != nil || before != foreign.known || !c.d.monitor.Expected(before, t.Table, entries).SameCounts(after) {
			foreign.suspected = true
		}
		foreign.known = after
	})
	c.result.Transactions++
	c.result.Elements += in.Rules()
	c.report(0)
	return nil
}

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
