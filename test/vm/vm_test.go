//go:build amd64

package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/mode"
	"sluice/test/lab"
)

const (
	// guestTime ends a guest that hangs, also on a very busy machine.
	guestTime = 20 * time.Minute
	// programTime ends a command that hangs, and makes it say where. Emulated
	// guests skip the time in which nothing happens.
	programTime = "-test.timeout=2m"
)

// unsuitable are tests of the dataplanes that do not run in guests: they take an
// emulated processor too long.
var unsuitable = []string{
	// They write tens of thousands of elements.
	"^TestHalfBuiltTableIsFinished$",
	"^TestHugePoolGrowsAndShrinks$",
	"^TestRefusedFrontendsAmongVeryMany$",
	"^TestVeryManyStickyServices$",
	"^TestTransactionsFitSmallBuffers$",
	"^TestForgettingClientsDelaysNoChange$",
	"^TestTenThousandSourceRanges$",
	"^TestListingOfAlgorithms$",
	"^TestListingOfNftLoadsAgain$/^algorithms_and_weights$",
	// They ask nothing of the kernel, or nothing that others do not.
	"^TestEveryCombinationOfTables$",
	"^TestChangeWritesFewRules$",
	"^TestRefusalsWithoutLineAreBisected$",
	"^TestDescribeRandomFrontends$",
	"^TestPacketsMeetFewRules$",
	"^TestTreesDoNotDependOnHistory$",
	"^TestBatchesKeepTrafficWorking$",
	// They run very many programs of iptables, and the kernel has little to do with it.
	"^TestDescribeReadsTheKernel$/^(legacy|nft)$",
	"^TestDescribeRemembersClients$",
	"^TestInterfaceNames$",
	// Others do nearly the same, in both variants of iptables.
	"^TestForeignWritesAreRepaired$/^(table_(nat|filter)_flushed|chain_(flushed|like_ours_added)|canary_gone|hook_deleted|hooks_doubled|rule_(deleted|replaced))$",
}

func TestKernels(t *testing.T) {
	cache, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := Kernels(t.Context(), cache, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	programs := buildPrograms(t)
	accelerator := ChooseAccelerator(t.Context(), kernels[0], Program{Args: []string{programs["lab"].Args[0], "-test.list=."}})
	t.Logf("guests run on %s", accelerator)
	for _, k := range kernels {
		for name, p := range programs {
			t.Run(k.Release+"/"+name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), guestTime)
				defer cancel()
				if err := Boot(ctx, k, accelerator, p, t.Output()); err != nil {
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

// buildPrograms builds the test binaries that run in guests.
func buildPrograms(t *testing.T) map[string]Program {
	t.Helper()
	proxy, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	suite := buildTest(t, "sluice/internal/mode")
	skip := "-test.skip=" + strings.Join(unsuitable, "|")
	programs := map[string]Program{
		"driver": {
			Args: []string{buildTest(t, "sluice/internal/iptables"), "-test.v", programTime},
		},
		"leftovers": {
			Args: []string{buildTest(t, "sluice/internal/leftovers"), "-test.v", programTime},
		},
		"coexist": {
			Args: []string{buildTest(t, "sluice/internal/coexist"), "-test.v", programTime},
		},
		"lab": {
			Args: []string{buildTest(t, "sluice/test/lab"), "-test.v", programTime,
				"-test.run=^TestScenarios$"},
			Files: map[string]string{"kube-proxy": proxy, "testdata": "testdata"},
			Env:   []string{lab.BinaryVariable + "=" + filepath.Join(workDir, "kube-proxy")},
		},
	}
	for _, m := range mode.All {
		// Modes with variants run commands, which takes time in a guest: too much for
		// the suite, of which their own tests have the part that kernels matter to.
		renders := 8
		if m.Variants != nil {
			renders = 2
		} else {
			programs["suite-"+m.Name] = Program{Args: []string{suite, "-test.v", programTime, skip,
				"-histories=5s", "-test.run=^TestSuite$/^" + m.Name + "$"}}
		}
		programs[m.Name] = Program{Args: []string{buildTest(t, "sluice/internal/dataplane/"+m.Name, "-tags=ipvs"), "-test.v", programTime, "-test.parallel=4",
			fmt.Sprintf("-renders=%d", renders), skip}}
	}
	return programs
}

// buildTest builds a package's test binary, which needs no libraries.
func buildTest(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(pkg)+".test")
	build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"test", "-c", "-o", file}, flags, []string{pkg})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests of %s: %v\n%s", pkg, err, output)
	}
	return file
}
