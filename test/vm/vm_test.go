//go:build linux && amd64

package vm

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

const (
	// guestTime ends a guest that hangs, and requestTime one that runs what was asked for.
	guestTime   = 15 * time.Minute
	requestTime = 3 * time.Hour
	// programTime ends a command that hangs, and makes it say where. Emulated
	// guests skip the time in which nothing happens.
	programTime = "-test.timeout=2m"
)

// attacks are tests of package lab that try every mode.
const attacks = "TestBadInputHarmsOnlyItself|TestProxyMayBeKilledAtAnyMoment|TestReadyOnceThereAreManifests|TestNodeWithoutIPv6"

// failover are tests of package lab in which endpoints fail.
const failover = "TestWhoIsLeftOut|TestRefusingPod|TestDeadNodeCostsASecond"

var (
	services  = flag.Int("services", 500, "among how many Services a change is made in ipvs mode; with more than a few thousand that takes minutes")
	scenarios = flag.String("scenarios", "", "directory of more scenarios to run in guests; ../lab/testdata has all")
	modes     = flag.String("modes", "", "modes to run those in, separated by commas; all of them if empty")
	sample    = flag.Int("sample", 1, "try only one in so many flows of each of their lines, and those less often")
	soak      = flag.String("soak", "", "arguments of package soak, such as '-mode ipvs -time 1m -only kill', to run it in guests too")
)

func TestKernels(t *testing.T) {
	testkit.NotShort(t, "a processor that is emulated takes minutes")
	cache, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := Kernels(t.Context(), cache, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	accelerator := ChooseAccelerator(t.Context(), kernels[0])
	t.Logf("guests run on %s", accelerator)
	for _, g := range buildGuests(t, kernels) {
		for _, k := range g.kernels {
			t.Run(k.Release+"/"+g.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := testkit.WithTimeout(t.Context(), g.time)
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
	testkit.NotShort(t, "it needs packages of Debian")
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

// guest is what runs in one guest. Booting takes as long as some of its programs.
type guest struct {
	name     string
	kernels  []Kernel
	time     time.Duration
	programs []Program
}

// buildGuests builds the test binaries that run in guests. The modes that need nothing of a
// kernel but netfilter are left to the oldest kernel, which is the one to lack something, and
// ipvs mode to the newest; the machine's own kernel shows the rest. Everything runs on all
// kernels if that is asked for.
func buildGuests(t *testing.T, kernels []Kernel) []guest {
	t.Helper()
	proxy, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	test := func(file string, args ...string) Program {
		return Program{Args: slices.Concat([]string{file, "-test.v", programTime}, args)}
	}
	// withProxy is a program that runs the proxy, in some modes.
	withProxy := func(p Program, modes string) Program {
		p.Files = map[string]string{"kube-proxy": proxy}
		p.Env = []string{lab.BinaryVariable + "=" + filepath.Join(workDir, "kube-proxy"), "SLUICE_MODES=" + modes}
		return p
	}
	labTest, suite := buildTest(t, "sluice/test/lab"), buildTest(t, "sluice/internal/mode")
	runScenarios := func(dir, modes string, args ...string) Program {
		p := withProxy(test(labTest, append(args, "-test.run=^TestScenarios$")...), modes)
		p.Files["testdata"] = dir
		return p
	}
	// only runs some tests of a program.
	only := func(p Program, tests string) Program {
		p.Args = append(slices.Clip(p.Args), "-test.run="+tests)
		return p
	}
	// runSuite tries few random states, and not any: nft needs minutes to list some of them in a guest.
	runSuite := func(mode string) Program {
		return test(suite, "-test.run=^TestSuite$/^"+mode+"$", "-seed=1", "-histories="+testkit.Extent("1ns", "1ns", "5s"))
	}

	oldest, newest := kernels[:1], kernels[len(kernels)-1:]
	if testkit.Full() {
		oldest, newest = kernels, kernels
	}
	guests := []guest{
		{"netfilter", oldest, guestTime, []Program{
			runScenarios("testdata", testkit.Extent("", "nftables,iptables-nft", "nftables,iptables-nft,iptables-legacy,userspace")),
			runSuite("nftables"),
		}},
		{"ipvs", newest, guestTime, []Program{
			test(buildTest(t, "sluice/internal/kernel/ipvs")),
			test(buildTest(t, "sluice/internal/kernel/localroute")),
			test(buildTest(t, "sluice/internal/dataplane/ipvs/leftover")),
			// Its tests wait most of the time.
			test(buildTest(t, "sluice/internal/dataplane/ipvs", "-tags=ipvs"), "-test.parallel=4", "-renders=3", fmt.Sprint("-services=", *services)),
			runScenarios(withScenarios(t, "ejection"), "ipvs"),
			withProxy(test(labTest, "-test.run=^TestIPVS|^TestConnectionsPerEndpoint$/^ipvs$"), ""),
			// It fills the table of connections, which all others need.
			withProxy(test(labTest, "-test.run=^TestFullConnectionTrackingTable$"), ""),
			// Guests have a clock to set, and cgroups of version 2.
			withProxy(test(labTest, "-test.run=^TestClockJumps$/^(nftables|ipvs)$|^TestMemoryLimitOfTheContainerIsRespected$"), ""),
			test(labTest, "-test.run=^TestPacketsMatchTheOracle$/^ipvs$", "-seed=1", "-states=10", "-packets=16"),
			// It is about the table of nftables mode as well.
			runSuite("ipvs"),
			// The machine's own kernel may have no flow tables. Packets through them take minutes.
			test(buildTest(t, "sluice/internal/dataplane/nftables"), "-test.run=^TestFlowTable"),
		}},
	}
	if testkit.Full() {
		guests = append(guests,
			// Scenarios that ask for verdicts run many commands.
			guest{"verdicts", newest, requestTime, []Program{
				only(runScenarios("../lab/testdata", "ipvs", "-test.parallel=4", "-test.timeout=0"), "^TestScenarios$/^ipvs$/^(verdict|node)-"),
			}},
			guest{"failover", newest, requestTime, []Program{
				withProxy(test(labTest, "-test.run=^("+failover+")$/^ipvs$", "-test.timeout=0"), "ipvs"),
			}},
			guest{"neighbours", kernels, guestTime, []Program{
				test(buildTest(t, "sluice/internal/kernel/iptables")),
				test(buildTest(t, "sluice/internal/mode/leftovers")),
				test(buildTest(t, "sluice/internal/observe/coexist")),
			}},
			guest{"flow tables", kernels, requestTime, []Program{
				measured(withProxy(test(labTest, "-test.run=^TestFlowTable", "-test.parallel=1", "-test.timeout=0"), "")),
			}},
			// Few states, and not any: nft needs minutes for some of them in a guest.
			guest{"nftables", kernels, guestTime, []Program{test(buildTest(t, "sluice/internal/dataplane/nftables"), "-renders=3", "-seed=1")}},
			// Its tests run commands, which takes time in a guest: too much for the suite.
			guest{"iptables", kernels, guestTime, []Program{test(buildTest(t, "sluice/internal/dataplane/iptables"), "-renders=2")}},
		)
	}
	if *scenarios != "" {
		guests = append(guests, guest{"scenarios", kernels, requestTime, []Program{
			runScenarios(*scenarios, *modes, fmt.Sprint("-sample=", *sample), "-test.timeout=0"),
		}})
	}
	if testkit.Full() {
		guests = append(guests, guest{"attacks", newest[len(newest)-1:], requestTime, []Program{
			withProxy(test(buildTest(t, "sluice/test/soak"), "-test.run=^TestTenants$", "-test.timeout=0", "-mode=ipvs", "-time=1m"), ""),
			withProxy(test(labTest, "-test.run=^("+attacks+")$/^ipvs$", "-test.timeout=0"), "ipvs"),
		}})
	}
	if *soak != "" {
		args := append([]string{"-test.run=^TestDisruptions$", "-test.timeout=0"}, strings.Fields(*soak)...)
		guests = append(guests, guest{"soak", kernels, requestTime, []Program{
			withProxy(test(buildTest(t, "sluice/test/soak"), args...), ""),
		}})
	}
	return guests
}

// measured has a program make its measurements, too.
func measured(p Program) Program {
	p.Env = append(p.Env, testkit.ExtentVariable+"=full")
	return p
}

// withScenarios returns a directory with the scenarios of this package and some of package lab.
func withScenarios(t *testing.T, ofLab ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	for _, name := range ofLab {
		name += ".txtar"
		text, err := os.ReadFile(filepath.Join("../lab/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// buildTest builds a package's test binary, which needs no libraries, and leaves out what
// debuggers want: guests read all of it into memory.
func buildTest(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), strings.ReplaceAll(pkg, "/", "-")+".test")
	build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"test", "-c", "-ldflags=-s -w", "-o", file}, flags, []string{pkg})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests of %s: %v\n%s", pkg, err, output)
	}
	return file
}
