//go:build linux

package ipvs

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/model"
	"sluice/internal/oracle/randomworld"
)

var (
	seed    = randomworld.SeedFlag()
	renders = flag.Int("renders", 10, "random states to render")
)

// What is rendered is what ipvsadm saves. The rest is nftables mode's.
func TestRenderedIsWhatIpvsadmSaves(t *testing.T) {
	t.Logf("seed %d (repeat with -seed)", *seed)
	k := newKernel(t)
	d := k.open()
	commands := func(text string) []string {
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
			return !strings.HasPrefix(line, "-") || strings.HasSuffix(line, "-w 0") // which drains
		})
		slices.Sort(lines)
		return lines
	}
	some := 0
	for i := 0; i < *renders || some == 0 && i < 100; i++ { // some states have no virtual service
		desired := dataplanetest.Desired(rand.New(rand.NewPCG(*seed, uint64(i))), Mode.Adjust)
		k.run("ipvsadm -C")
		dataplanetest.OK(t, d.Reconcile(t.Context(), desired))
		var rendered bytes.Buffer
		if err := Render(&rendered, desired, dataplane.RenderOptions{Families: model.Families[:]}); err != nil {
			t.Fatal(err)
		}
		want := commands(rendered.String())
		if diff := cmp.Diff(want, commands(k.run("ipvsadm -Sn"))); diff != "" {
			t.Fatalf("rendered (-) and saved (+) in state %d:\n%s", i, diff)
		}
		some += len(want)
	}
	if some == 0 {
		t.Error("no state had a virtual service")
	}
}
