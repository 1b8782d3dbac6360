//go:build linux

package iptables

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// current are the features of current versions. NFAcct is left out: the counter has
// to be created in the kernel first.
var current = iptables.Features{RandomFully: true, BPF: true}

// Render writes the input that Reconcile gives to iptables-restore for an empty
// kernel, for some families. It is deterministic.
func Render(w io.Writer, desired *plan.Desired, o dataplane.RenderOptions) error {
	return render(w, desired, o.Families, current)
}

func render(w io.Writer, desired *plan.Desired, families []model.Family, features iptables.Features) error {
	out := bufio.NewWriter(w)
	for _, family := range families {
		fmt.Fprintf(out, "# %v: for %s-restore --noflush\n", family, iptables.Command(family))
		s := newFamilyState(family, features)
		s.fill(desired, slices.Collect(maps.Values(desired.Frontends)))
		for _, t := range s.tables {
			t.missing, t.removing = hooksToMend(t.Name, nil)
			if _, err := io.Copy(out, t.input(s.out[t.Name], false).Reader()); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}
