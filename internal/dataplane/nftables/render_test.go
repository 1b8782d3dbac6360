//go:build linux

package nftables

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/model"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var (
	seed    = randomworld.SeedFlag()
	renders = flag.Int("renders", 0, "random states to render")
)

func rendered(t testing.TB, d *plan.Desired, families ...model.Family) string {
	t.Helper()
	var b strings.Builder
	if err := Render(&b, d, dataplane.RenderOptions{Families: families}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var (
	blockStart = regexp.MustCompile(`^(table|\t(set|map|chain)) .* \{$`)
	someCount  = regexp.MustCompile(`counter packets \d+ bytes \d+`)
	// nft 1.1 has a name for a priority that 1.0 does not name.
	outputNAT = regexp.MustCompile(`hook output priority dstnat;`)
)

// blocks are the parts of a listing by what they begin with. The order of blocks
// and of elements does not count, nor what counters say.
func blocks(listing string) map[string][]string {
	listing = strings.ReplaceAll(listing, ",\n\t\t\t     ", ", ")
	listing = someCount.ReplaceAllString(listing, "counter packets 0 bytes 0")
	listing = outputNAT.ReplaceAllString(listing, "hook output priority -100;")
	out := map[string][]string{}
	table, block := "", ""
	for line := range strings.SplitSeq(listing, "\n") {
		switch {
		case blockStart.MatchString(line):
			if strings.HasPrefix(line, "table") {
				table, line = line, ""
			}
			block = table + line
			out[block] = nil
		case strings.HasPrefix(line, "\t\telements = {"):
			elements := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "\t\telements = { "), " }"), ", ")
			slices.Sort(elements)
			out[block] = append(out[block], elements...)
		case strings.Trim(line, "\t}") != "":
			out[block] = append(out[block], line)
		}
	}
	return out
}

// checkRendered compares what is rendered with what nft lists after it is programmed,
// and makes nft check it.
func (k *kernel) checkRendered(d *Dataplane, desired *plan.Desired) {
	k.t.Helper()
	ctx := context.Background()
	k.remove()
	text := ""
	for _, f := range model.Families {
		table := rendered(k.t, desired, f)
		if k.loads(desired, f) {
			k.nft(table, "-c", "-f", "-")
		}
		text += table
	}
	ok(k.t, d.Reconcile(ctx, desired))
	listed := k.list()
	if diff := cmp.Diff(blocks(listed), blocks(text)); diff != "" {
		k.t.Fatalf("what nft lists (-) is not what is rendered (+):\n%s", diff)
	}
}

// list lists the ruleset when the kernel has come to rest: it resizes large sets in the
// background, and a listing then has elements twice or not at all.
func (k *kernel) list() string {
	k.t.Helper()
	listed := ""
	for range 20 {
		again := k.nft("", "list", "ruleset")
		if again == listed {
			break
		}
		listed = again
	}
	return listed
}

// loads reports whether nft can load its own listing of a family: version 1.0.6
// lists session affinity of IPv6 frontends, but aborts when it loads that.
func (k *kernel) loads(d *plan.Desired, f model.Family) bool {
	if f == model.IPv4 || !strings.Contains(k.nft("", "--version"), " v1.0.6 ") {
		return true
	}
	for key, frontend := range d.Frontends {
		if frontend.Affinity > 0 && key.Family() == f {
			return false
		}
	}
	return true
}

func TestRenderedIsWhatNftLists(t *testing.T) {
	t.Logf("seed %d (repeat with -seed)", *seed)
	k := newKernel(t)
	d := k.dataplane()
	for i := range testkit.ExtentOr(*renders, 8, 30, 80) {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)))
		k.checkRendered(d, dataplanetest.Desired(rng, Mode.Adjust))
	}
}

func TestRenderedVarietyIsWhatNftLists(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	everyone := variety()
	everyone.Settings.ServiceCIDRs = prefixes("0.0.0.0/0", "10.96.0.7/32", "::/0")
	everyone.Settings.MasqueradeMark = 1 << 30
	single := variety()
	for k, f := range everyone.Frontends {
		if f.Filtered && k.Family() == model.IPv4 {
			f.Sources, single.Frontends[k].Sources = prefixes("0.0.0.0/0"), prefixes("192.0.2.7/32", "192.0.2.9/32")
		} else if f.Filtered {
			f.Sources, single.Frontends[k].Sources = prefixes("::/0"), prefixes("2001:db8::7/128")
		}
	}
	long := variety()
	for i, f := range slices.Collect(maps.Values(long.Frontends)) {
		if f.Family() == model.IPv4 && len(f.Route.Endpoints) > 0 {
			f.Affinity = []uint32{1, 59, 60, 3600, 86400, 90061}[i%6]
		}
	}
	by := func(d plan.Detector) *plan.Desired {
		out := variety()
		out.Settings.IPv4, out.Settings.IPv6 = d, d
		return out
	}
	for _, test := range []struct {
		name string
		in   *plan.Desired
	}{
		{"variety", variety()},
		{"affinity of IPv6", withAffinity6(variety())},
		{"ranges of all addresses", everyone},
		{"ranges of single addresses", single},
		{"ranges of every length", withEveryLength(variety())},
		{"times", long},
		{"pods behind a bridge", by(plan.Detector{Interface: "cni0"})},
		{"pods behind interfaces", by(plan.Detector{InterfacePrefix: "cali"})},
		{"an interface with a star", by(plan.Detector{Interface: "eth*"})},
		{"no pods", by(plan.Detector{})},
		{"nothing", &plan.Desired{Settings: plan.Settings{MasqueradeMark: 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			(&kernel{t, k.ns}).checkRendered(d, test.in)
		})
	}
}
