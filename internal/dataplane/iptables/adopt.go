package iptables

import (
	"context"
	"maps"
)

// adopt brings a family from what was listed to the items. Chains of ours and
// of upstream's that nobody wants any more go last.
func (r *round) adopt(ctx context.Context, s *side, items []*item) error {
	listed := make([]map[string]print, len(s.tables))
	for i, t := range s.tables {
		listed[i] = maps.Clone(t.mirror)
		t.adoptForms()
	}
	for _, it := range items {
		s.put(it)
	}
	s.world.layout()
	for _, t := range s.tables {
		t.surplusOf(s.world.out[t.Name])
	}
	if err := r.settle(ctx, s, items); err != nil {
		return err
	}
	for i, t := range s.tables {
		if err := r.learn(ctx, t, listed[i]); err != nil {
			return err
		}
	}
	return nil
}

// adoptForms reads known forms of iptables as what was written.
func (t *table) adoptForms() {
	if len(t.forms) == 0 {
		return
	}
	written := map[print]print{}
	for w, l := range t.forms {
		written[l] = w
	}
	for name, p := range t.mirror {
		if w, known := written[p]; known {
			t.mirror[name] = w
		}
	}
}

// surplusOf finds the chains that are there and not among all that are wanted.
func (t *table) surplusOf(all *pages) {
	for name := range t.mirror {
		if _, wanted := all.byName[name]; !wanted {
			t.surplus[name] = true
		}
	}
}

// learn finds out whether iptables prints rules in another form than ours: a
// chain was listed, with as many rules as it should have but in other words,
// was written, and is listed in those words again. From then on that form is
// known, or the chain would be written again for ever.
func (r *round) learn(ctx context.Context, t *table, before map[string]print) error {
	odd := map[string]print{}
	for name, p := range t.mirror {
		if b, there := before[name]; there && b != p && b.rules == p.rules && t.forms[p] != b {
			odd[name] = b
		}
	}
	if len(odd) == 0 {
		return nil
	}
	l, err := r.d.host.list(ctx, t.Table)
	if err != nil {
		return err
	}
	r.d.note(func() {
		for name, b := range odd {
			if l.chains[name] == b {
				t.forms[t.mirror[name]] = b
			}
		}
	})
	return nil
}
