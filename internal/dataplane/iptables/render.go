package iptables

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sluice/internal/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// current is what iptables of today can do. Counting under a name is left out:
// the name has to be made in the kernel first.
var current = iptables.Features{RandomFully: true, BPF: true}

// Render writes what Reconcile gives iptables-restore for an empty kernel, for
// some families. The same is always written in the same order.
func Render(w io.Writer, desired *plan.Desired, families []model.Family) error {
	return render(w, desired, families, current)
}

func render(w io.Writer, desired *plan.Desired, families []model.Family, can iptables.Features) error {
	out := bufio.NewWriter(w)
	for _, f := range families {
		fmt.Fprintf(out, "# %v: for %s-restore --noflush\n", f, iptables.Command(f))
		s := newFamilyState(f, can)
		s.fill(desired, slices.Collect(maps.Values(desired.Frontends)))
		for _, t := range s.tables {
			texts := s.ruleset.out[t.Name]
			slices.SortFunc(texts.list, func(a, b *chainText) int { return strings.Compare(a.Name, b.Name) })
			t.missing, t.removing = hooksToMend(t.Name, nil)
			if _, err := io.Copy(out, t.input(texts, false).Reader()); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}
