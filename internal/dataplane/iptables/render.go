package iptables

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// current is what iptables of today can do. Counting under a name is left out:
// the name has to be made in the kernel first.
var current = features{randomFully: true, bytecode: true}

// Render writes what Reconcile gives iptables-restore for an empty kernel, for
// some families. The same is always written in the same order.
func Render(w io.Writer, desired *plan.Desired, families []model.Family) error {
	return render(w, desired, families, current)
}

func render(w io.Writer, desired *plan.Desired, families []model.Family, can features) error {
	out := bufio.NewWriter(w)
	for _, f := range families {
		fmt.Fprintf(out, "# %v: for %s-restore --noflush\n", f, words[f].command)
		s := newSide(f, can)
		s.fill(desired)
		for _, t := range s.tables {
			pages := s.world.out[t.Name]
			slices.SortFunc(pages.list, func(a, b *page) int { return strings.Compare(a.chain, b.chain) })
			t.missing, t.removing = hooksToMend(t.Name, nil)
			if _, err := io.Copy(out, t.write(pages, false).reader()); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// fill lays out all that is desired.
func (s *side) fill(desired *plan.Desired) {
	s.world.configure(desired.Settings)
	for _, h := range desired.HealthChecks {
		s.world.setHealthPort(h.Port, true)
	}
	for _, it := range s.items(slices.Collect(maps.Values(desired.Frontends)), nil) {
		s.put(it)
	}
	s.world.layout()
}
