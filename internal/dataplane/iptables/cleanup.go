package iptables

import (
	"context"
	"errors"
	"fmt"

	"sluice/internal/iptables"
	"sluice/internal/model"
)

// Cleanup removes our chains and what leads to them. A chain that somebody
// else's rule leads to stays, empty.
func (d *Dataplane) Cleanup(ctx context.Context) error {
	d.locked(func() { d.states = nil })
	if err := d.prepare(ctx); err != nil {
		return err
	}
	var errs []error
	for _, f := range d.families {
		errs = append(errs, d.cleanFamily(ctx, f))
	}
	return errors.Join(errs...)
}

// cleanFamily removes our chains of a family.
func (d *Dataplane) cleanFamily(ctx context.Context, f model.Family) error {
	var errs []error
	for _, name := range iptables.TableNames {
		if err := d.cleanTable(ctx, newTable(iptables.Table{Family: f, Name: name})); err != nil {
			errs = append(errs, fmt.Errorf("removing our chains: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (d *Dataplane) cleanTable(ctx context.Context, t *table) error {
	l, err := d.driver.List(ctx, t.Table)
	if err != nil {
		return err
	}
	t.take(l)
	t.missing = nil
	t.removing = ownHooks(t.Name, l.Builtin)
	t.surplusOf(newChainTexts())
	return (&commit{d: d}).writeTable(ctx, t, newChainTexts())
}

// ownHooks are the rules among those of built-in chains that are our hooks or
// upstream's, as often as they are there.
func ownHooks(table string, rules []string) []string {
	ours := map[string]bool{}
	for _, text := range upstreamHooks[table] {
		ours[text] = true
	}
	for _, h := range hooksOf(table) {
		ours[h.text()] = true
	}
	var list []string
	for _, r := range rules {
		if ours[r] {
			list = append(list, r)
		}
	}
	return list
}
