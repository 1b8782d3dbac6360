//go:build linux

package iptables

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/plan"
)

// commit is one Apply or Reconcile.
type commit struct {
	d      *Dataplane
	result dataplane.Result
	failed map[plan.Key]error
	// partial says that it is an Apply.
	partial bool
	// refusals counts what iptables-restore refused.
	refusals int
	// total is how many frontends are to be written, done how many are.
	total, done int
}

func (d *Dataplane) beginCommit(partial bool) *commit {
	d.listen(false)
	d.commits.Begin()
	d.locked(func() {
		for _, s := range d.states {
			for _, t := range s.tables {
				t.written = 0
			}
		}
	})
	return &commit{d: d, failed: map[plan.Key]error{}, partial: partial}
}

// listen starts and stops to listen to writes of others.
func (d *Dataplane) listen(on bool) {
	if d.monitor == nil {
		return // before the first Reconcile
	}
	if err := d.monitor.Listen(d.ctx, on); err != nil {
		d.logger.V(1).Info("Cannot listen for nftables notifications", "reason", err.Error())
	}
}

// end returns the result. After an error the contents of the kernel are unknown.
func (c *commit) end(err error) dataplane.Result {
	c.d.listen(true)
	if err != nil {
		c.d.locked(func() { c.d.states = nil })
	}
	c.d.commits.End()
	c.result.Err = err
	if len(c.failed) > 0 {
		c.result.Failed = c.failed
	}
	return c.result
}

// report adds to the number of frontends that are written, and reports progress.
func (c *commit) report(done int) {
	c.done += done
	if c.d.progress != nil {
		c.d.progress(dataplane.Progress{Done: c.done, Total: c.total, Transactions: c.result.Transactions})
	}
}

// possible returns the frontends that can be programmed on this host. The others are
// recorded as failed.
func (c *commit) possible(frontends iter.Seq[*plan.Frontend]) []*plan.Frontend {
	var list []*plan.Frontend
	for f := range frontends {
		err := lacks(&c.d.features, f)
		if !slices.Contains(c.d.families, f.Family()) {
			err = errNoFamily
		}
		if err != nil {
			c.fail(f.Key, err)
			continue
		}
		list = append(list, f)
	}
	return list
}

func (c *commit) fail(k plan.Key, err error) {
	delete(c.result.Left, k)
	c.failed[k] = fmt.Errorf("iptables refused %s: %w", k, err)
}

// program puts items into the ruleset and writes them. Those that are refused are
// left out and recorded.
func (c *commit) program(ctx context.Context, s *familyState, items []*item) error {
	for _, it := range items {
		s.put(it)
	}
	return c.settle(ctx, s, items)
}

// settle writes items that were put.
func (c *commit) settle(ctx context.Context, s *familyState, items []*item) error {
	for {
		err := c.flush(ctx, s)
		var refused *refusedError
		if !errors.As(err, &refused) {
			return err
		}
		if !c.leaveOut(s, items, refused) {
			return c.bisect(ctx, s, items, refused)
		}
	}
}

// leaveOut removes the frontends that a refusal names from the items, and reports
// whether there were any.
func (c *commit) leaveOut(s *familyState, items []*item, refused *refusedError) bool {
	some := false
	for _, it := range items {
		before := len(it.frontends)
		it.frontends = slices.DeleteFunc(it.frontends, func(f *plan.Frontend) bool {
			bad := slices.Contains(refused.keys, f.Key)
			if bad {
				c.fail(f.Key, refused)
			}
			return bad
		})
		if len(it.frontends) < before {
			some = true
			s.put(it)
		}
	}
	return some
}

// bisect finds the items that are refused if iptables-restore does not name them.
func (c *commit) bisect(ctx context.Context, s *familyState, items []*item, refused error) error {
	for _, it := range items {
		s.undo(it)
	}
	// Without all of them it must succeed, or they are not the cause.
	if err := c.flush(ctx, s); err != nil {
		return err
	}
	if len(items) == 1 {
		for _, f := range items[0].frontends {
			c.fail(f.Key, refused)
		}
		if items[0].old != nil {
			for _, f := range items[0].old.frontends {
				c.fail(f.Key, refused)
			}
		}
		return nil
	}
	half := len(items) / 2
	if err := c.program(ctx, s, items[:half]); err != nil {
		return err
	}
	return c.program(ctx, s, items[half:])
}

// maxRefusals bounds the refusals of a commit. More are hardly due to frontends.
const maxRefusals = 500

// refusedError is the refusal of an input by iptables-restore.
type refusedError struct {
	keys []plan.Key // the frontends of the refused line, if it is known
	err  error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// attribute finds the frontends that a refused input is about.
func (c *commit) attribute(out chainTexts, in *iptables.Input, err error) error {
	if !iptables.Refused(err) {
		return err
	}
	if c.refusals++; c.refusals > maxRefusals {
		return fmt.Errorf("more than %d writes were refused, the last: %w", maxRefusals, err)
	}
	return &refusedError{out.ownersAt(in, iptables.RefusedLine(err)), err}
}
