//go:build linux

package iptables

import (
	"context"
	"fmt"
	"maps"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Reconcile lists our tables, adopts the chains that are right, and repairs the rest.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	d.locked(func() { d.states = nil })
	c := d.beginCommit(false)
	if err := d.prepare(ctx); err != nil {
		return c.end(err)
	}
	dormant, err := d.monitor.Dormant(ctx)
	if err == nil {
		err = d.monitor.Wake(ctx, dormant)
	}
	if err != nil {
		return c.end(fmt.Errorf("waking the tables of iptables up: %w", err))
	}
	var served []model.Family
	for _, family := range d.families {
		if desired.Settings.Serves(family) {
			served = append(served, family)
		} else if err := d.driver.RemoveChains(ctx, d.logger, family, modeChains); err != nil {
			return c.end(fmt.Errorf("removing our chains: %w", err))
		}
	}
	generation, err := d.monitor.Generation(ctx)
	if err != nil {
		return c.end(fmt.Errorf("reading the state of iptables: %w", err))
	}
	d.locked(func() { d.foreign.known, d.foreign.suspected = generation, false })
	frontends := c.possible(maps.Values(desired.Frontends))
	c.total = len(frontends)
	c.report(0)
	var states []*familyState
	for _, family := range served {
		s := newFamilyState(family, d.features)
		if err := c.reconcile(ctx, s, desired, frontends); err != nil {
			return c.end(err)
		}
		c.report(dataplane.Count(ofFamily(family, frontends)))
		states = append(states, s)
	}
	d.locked(func() { d.states = states })
	d.begin.Do(func() { d.watching.Go(d.watchOthers) })
	return c.end(nil)
}

// reconcile lists a family's tables, and writes the difference to what is desired.
// Chains of ours and of upstream's that are no longer needed are removed last.
func (c *commit) reconcile(ctx context.Context, s *familyState, desired *plan.Desired, frontends []*plan.Frontend) error {
	listed := make([]map[string]iptables.Fingerprint, len(s.tables))
	for i, t := range s.tables {
		l, err := c.d.driver.List(ctx, t.Table)
		if err != nil {
			return err
		}
		t.forms = c.d.formsOf(t.Table)
		t.take(l)
		listed[i] = maps.Clone(t.mirror)
		t.adoptForms()
	}
	items := s.fill(desired, frontends)
	for _, t := range s.tables {
		t.surplusOf(s.out[t.Name])
	}
	if err := c.settle(ctx, s, items); err != nil {
		return err
	}
	for i, t := range s.tables {
		if err := c.learnForms(ctx, t, listed[i]); err != nil {
			return err
		}
	}
	return nil
}

// formsOf are the forms in which iptables was seen to print chains of a table.
func (d *Dataplane) formsOf(t iptables.Table) map[iptables.Fingerprint]iptables.Fingerprint {
	if d.forms[t] == nil {
		d.forms[t] = map[iptables.Fingerprint]iptables.Fingerprint{}
	}
	return d.forms[t]
}

// adoptForms replaces fingerprints in the mirror by those of what was written, if
// iptables is known to print that in another form.
func (t *table) adoptForms() {
	if len(t.forms) == 0 {
		return
	}
	written := map[iptables.Fingerprint]iptables.Fingerprint{}
	for w, l := range t.forms {
		written[l] = w
	}
	for name, listed := range t.mirror {
		if w, known := written[listed]; known {
			t.mirror[name] = w
		}
	}
}

// learnForms finds chains that iptables prints in another form than ours: one that
// was listed with the right number of rules but another text, was written, and is
// listed with that text again. Without it, such a chain would be written forever.
func (c *commit) learnForms(ctx context.Context, t *table, before map[string]iptables.Fingerprint) error {
	odd := map[string]iptables.Fingerprint{}
	for name, written := range t.mirror {
		if b, there := before[name]; there && b != written && b.Rules == written.Rules && t.forms[written] != b {
			odd[name] = b
		}
	}
	if len(odd) == 0 {
		return nil
	}
	l, err := c.d.driver.List(ctx, t.Table)
	if err != nil {
		return err
	}
	c.d.locked(func() {
		for name, b := range odd {
			if l.Chains[name] == b {
				t.forms[t.mirror[name]] = b
			}
		}
	})
	return nil
}
