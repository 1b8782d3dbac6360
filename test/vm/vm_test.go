//go:build amd64

package vm

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/lab"
)

const (
	// guestTime ends a guest that hangs, also on a very busy machine.
	guestTime = 20 * time.Minute
	// programTime ends a command that hangs, and makes it say where. Emulated
	// guests skip the time in which nothing happens.
	programTime = "-test.timeout=2m"
)

var (
	everywhere = flag.Bool("everywhere", false, "run everything on all kernels")
	scenarios  = flag.String("scenarios", "testdata", "directory of the scenarios to run in guests; ../lab/testdata has all")
	modes      = flag.String("modes", "", "modes to run the scenarios in, separated by commas; all of them if empty")
	soak       = flag.String("soak", "", "arguments of package soak, such as '-mode ipvs -time 1m -only kill', to run it in guests too")
	services   = flag.Int("services", 500, "among how many Services a change is made in ipvs mode; with more than a few thousand that takes minutes")
	sample     = flag.Int("sample", 1, "try only one in so many flows of each line of a scenario, and those less often")
)

func TestKernels(t *testing.T) {
	cache, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := Kernels(t.Context(), cache, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	guests := buildGuests(t)
	accelerator := ChooseAccelerator(t.Context(), kernels[0], Program{Args: []string{guests["lab"].programs[0].Args[0], "-test.list=."}})
	t.Logf("guests run on %s", accelerator)
	for i, k := range kernels {
		for name, g := range guests {
			if !*everywhere && (g.only == oldest && i > 0 || g.only == newest && i < len(kernels)-1) {
				continue
			}
			t.Run(k.Release+"/"+name, func(t *testing.T) {
				t.Parallel()
				limit := guestTime
				if *scenarios != "testdata" || name == soakGuest {
					limit = 3 * time.Hour
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				if err := Boot(ctx, k, accelerator, t.Output(), g.programs...); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestListingsLoadInNftOfDebian13 runs on the machine's own kernel.
func TestListingsLoadInNftOfDebian13(t *testing.T) {
	cache, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := cache.debian13Dir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	test := exec.CommandContext(t.Context(), buildTest(t, "sluice/internal/dataplane/nftables"), "-test.v", "-test.run=^TestListing")
	test.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
	output, err := test.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Error(err)
	}
	if want := "listing and loading with nftables v1.1"; !strings.Contains(string(output), want) {
		t.Errorf("the output lacks %q", want)
	}
}

// soakGuest is the name of the guest that runs package soak.
const soakGuest = "soak"

// guest is what runs in one guest.
type guest struct {
	programs []Program
	// only leaves the guest to one of the kernels, to save time. Empty for all.
	only choice
}

// choice selects one of the kernels.
type choice string

const (
	oldest choice = "oldest"
	newest choice = "newest"
)

// buildGuests builds the test binaries that run in guests. Booting takes as long as some
// of them do, so these share a guest.
func buildGuests(t *testing.T) map[string]guest {
	t.Helper()
	proxy, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	labTest, suite := buildTest(t, "sluice/test/lab"), buildTest(t, "sluice/internal/mode")
	test := func(file string, args ...string) Program {
		return Program{Args: slices.Concat([]string{file, "-test.v", programTime}, args)}
	}
	scenarioTest := test(labTest, "-test.run=^TestScenarios$", fmt.Sprint("-sample=", *sample))
	if *scenarios != "testdata" {
		scenarioTest.Args = append(scenarioTest.Args, "-test.timeout=0")
	}
	scenarioTest.Files = map[string]string{"kube-proxy": proxy, "testdata": *scenarios}
	scenarioTest.Env = []string{lab.BinaryVariable + "=" + filepath.Join(workDir, "kube-proxy"), "SLUICE_MODES=" + *modes}
	ipvsTest := scenarioTest
	ipvsTest.Args = test(labTest, "-test.run=^TestIPVS|^TestConnectionsPerEndpoint$/^ipvs$").Args
	guests := map[string]guest{
		"lab": {programs: []Program{scenarioTest}},
		"neighbours": {programs: []Program{
			test(buildTest(t, "sluice/internal/iptables")),
			test(buildTest(t, "sluice/internal/leftovers")),
			test(buildTest(t, "sluice/internal/coexist")),
		}, only: oldest},
		// Few states, and not any: nft needs minutes for some of them in a guest.
		"nftables": {programs: []Program{test(buildTest(t, "sluice/internal/dataplane/nftables"), "-renders=3", "-seed=1")}, only: oldest},
		// Its tests run commands, which takes time in a guest: too much for the suite.
		"iptables":       {programs: []Program{test(buildTest(t, "sluice/internal/dataplane/iptables"), "-renders=2")}, only: oldest},
		"suite-nftables": {programs: []Program{test(suite, "-histories=5s", "-test.run=^TestSuite$/^nftables$")}, only: oldest},
		// Its tests wait most of the time.
		"ipvs": {programs: []Program{
			test(buildTest(t, "sluice/internal/ipvs")),
			test(buildTest(t, "sluice/internal/dataplane/ipvs", "-tags=ipvs"), "-test.parallel=4", "-renders=3", fmt.Sprint("-services=", *services)),
			ipvsTest,
		}, only: newest},
		// The suite of ipvs mode is about the table of nftables mode as well.
		"suite-ipvs": {programs: []Program{
			test(suite, "-histories=5s", "-test.run=^TestSuite$/^ipvs$"),
			test(labTest, "-test.run=^TestPacketsMatchTheOracle$/^ipvs$", "-seed=1", "-states=10", "-packets=16"),
		}, only: newest},
	}
	if *soak != "" {
		soakTest := scenarioTest
		soakTest.Args = test(buildTest(t, "sluice/test/soak"), append([]string{"-test.run=^TestDisruptions$", "-test.timeout=0"}, strings.Fields(*soak)...)...).Args
		soakTest.Files = map[string]string{"kube-proxy": proxy}
		guests[soakGuest] = guest{programs: []Program{soakTest}}
	}
	return guests
}

// buildTest builds a package's test binary, which needs no libraries.
func buildTest(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), strings.ReplaceAll(pkg, "/", "-")+".test")
	build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"test", "-c", "-o", file}, flags, []string{pkg})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests of %s: %v\n%s", pkg, err, output)
	}
	return file
}
