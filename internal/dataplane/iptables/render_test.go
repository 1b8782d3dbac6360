//go:build linux

package iptables

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var renders = flag.Int("renders", 0, "random states to render for each variant of iptables")

// asSaved converts rendered text to the form of dump: inserted hooks in their final
// order, without tables and the order of chains.
func asSaved(text string) []string {
	var lines, hooks []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "-I "):
			hooks = append(hooks, "-A"+line[2:])
		case line[0] == ':':
			name, _, _ := strings.Cut(line, "[")
			lines = append(lines, name)
		case line == "COMMIT":
			slices.Reverse(hooks)
			lines, hooks = append(lines, hooks...), nil
		case line[0] != '#' && line[0] != '*':
			lines = append(lines, line)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
	return lines
}

// chainOf is the chain that a line is about, or the line.
func chainOf(line string) string {
	if rest, ok := strings.CutPrefix(line, "-A "); ok {
		chain, _, _ := strings.Cut(rest, " ")
		return chain
	}
	return line
}

// saved is the dump without what every table has.
func (k *kernel) saved() []string {
	k.t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(k.dump()) {
		if !strings.HasPrefix(line, ":") || Owns(strings.Fields(line[1:])[0]) {
			kept.WriteString(line)
		}
	}
	return asSaved(kept.String())
}

func (k *kernel) checkRendered(d *Dataplane, desired *plan.Desired) {
	k.t.Helper()
	ctx := context.Background()
	k.remove()
	ok(k.t, d.Reconcile(ctx, desired))
	want := k.saved()
	var text strings.Builder
	if err := render(&text, desired, model.Families[:], d.features); err != nil {
		k.t.Fatal(err)
	}
	if diff := cmp.Diff(want, asSaved(text.String())); diff != "" {
		k.t.Fatalf("what is saved (-) is not what is rendered (+):\n%s", diff)
	}
	for _, f := range model.Families {
		var text strings.Builder
		if err := Render(&text, desired, dataplane.RenderOptions{Families: []model.Family{f}}); err != nil {
			k.t.Fatal(err)
		}
		k.run(text.String(), iptables.Command(f)+"-"+k.variant.String()+"-restore", "--noflush", "--test")
	}
}

func TestRenderedIsWhatIPTablesSaves(t *testing.T) {
	t.Logf("seed %d (repeat with -seed)", *seed)
	inEachVariant(t, func(t *testing.T, k *kernel) {
		d := k.dataplane()
		k.checkRendered(d, variety())
		for i := range testkit.ExtentOr(*renders, 3, 10, 20) {
			rng := rand.New(rand.NewPCG(*seed, uint64(i)))
			k.checkRendered(d, dataplanetest.Desired(rng, Mode.Adjust))
		}
	})
}
