//go:build amd64

package vm

import (
	"cmp"
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
	// guestTime ends a guest that hangs, and fullTime one that runs everything.
	guestTime = 20 * time.Minute
	fullTime  = 3 * time.Hour
	// programTime ends a command that hangs, and makes it say where. Emulated
	// guests skip the time in which nothing happens.
	programTime = "-test.timeout=4m"
)

var (
	scenarios = flag.String("scenarios", "testdata", "directory of the scenarios to run in guests; ../lab/testdata has all")
	modes     = flag.String("modes", "", "modes to run the scenarios in, separated by commas; all of them if empty")
	soak      = flag.String("soak", "", "arguments of package soak, such as '-mode ipvs -time 1m -only kill', to run it in guests too")
	services  = flag.Int("services", 500, "among how many Services a change is made in ipvs mode; with more than a few thousand that takes minutes")
	sample    = flag.Int("sample", 1, "try only one in so many flows of each line of a scenario, and those less often")
)

func TestKernels(t *testing.T) {
	testkit.NotShort(t, "it boots other kernels")
	cache, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := Kernels(t.Context(), cache, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	b := builder{T: t}
	accelerator := ChooseAccelerator(t.Context(), kernels[0], Program{Args: []string{b.test("sluice/internal/ipvs").Args[0], "-test.list=."}})
	t.Logf("guests run on %s", accelerator)
	limit := guestTime
	if testkit.Full() || *scenarios != "testdata" || *soak != "" {
		limit = fullTime
	}
	for i, k := range kernels {
		for _, g := range b.guests() {
			if !g.runsOn(i, len(kernels)) {
				continue
			}
			t.Run(k.Release+"/"+g.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := testkit.WithTimeout(t.Context(), limit)
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
	testkit.NotShort(t, "it gets packages of Debian 13")
	cache, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := cache.debian13Dir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	test := exec.CommandContext(t.Context(), (&builder{T: t}).test("sluice/internal/dataplane/nftables").Args[0], "-test.v", "-test.run=^TestListing")
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

// guest is what runs in one guest: booting takes as long as some programs do, so they share it.
type guest struct {
	name     string
	programs []Program
	// only leaves the guest to one of the kernels, unless everything is tested. Empty for all.
	only choice
}

// choice selects one of the kernels.
type choice string

const (
	oldest choice = "oldest"
	newest choice = "newest"
)

// runsOn reports whether the guest is for one of the kernels, which are sorted by age.
func (g *guest) runsOn(kernel, kernels int) bool {
	switch {
	case testkit.Full(), g.only == "":
		return true
	case g.only == oldest:
		return kernel == 0
	}
	return kernel == kernels-1
}

// builder builds the test binaries that run in guests, each once.
type builder struct {
	*testing.T
	built map[string]string
}

// kernelModes are those that all machines have.
const kernelModes = "nftables,iptables-nft,iptables-legacy,userspace"

// guests are what is to be shown on other kernels. Few programs and states: what does not
// depend on the kernel is tested on this machine.
func (b *builder) guests() []guest {
	b.Helper()
	suite := func(mode string) Program {
		return b.test("sluice/internal/mode", fmt.Sprint("-histories=", testkit.Extent("1s", "2s", "5s")), "-test.run=^TestSuite$/^"+mode+"$")
	}
	renders := fmt.Sprint("-renders=", testkit.Extent(1, 1, 3))
	old := []Program{
		b.scenarios("SLUICE_MODES=" + cmp.Or(*modes, testkit.Extent(kernelModes, kernelModes, ""))),
		b.test("sluice/internal/dataplane/nftables", renders, "-seed=1"),
		suite("nftables"),
	}
	ipvs := []Program{
		b.test("sluice/internal/ipvs"),
		b.test("sluice/internal/dataplane/ipvs", "-test.parallel=4", renders, fmt.Sprint("-services=", *services)),
		b.lab("-test.run=^TestIPVS|^TestConnectionsPerEndpoint$/^ipvs$"),
		suite("ipvs"),
		b.lab("-test.run=^TestPacketsMatchTheOracle$/^ipvs$", "-seed=1", fmt.Sprint("-states=", testkit.Extent(1, 5, 10)), "-packets=16"),
	}
	guests := []guest{{"nftables", old, oldest}, {"ipvs", ipvs, newest}}
	if testkit.Full() {
		guests = append(guests, guest{"iptables", []Program{
			b.test("sluice/internal/dataplane/iptables", renders),
			b.test("sluice/internal/iptables"),
			b.test("sluice/internal/leftovers"),
			b.test("sluice/internal/coexist"),
		}, ""})
	} else {
		// What they leave in the kernel is the kernel's own format.
		guests[0].programs = append(guests[0].programs, b.test("sluice/internal/leftovers"))
		// In the modes of the first guest, the newer kernel is as this machine's.
		guests[1].programs = append(guests[1].programs, b.scenarios("SLUICE_MODES="+cmp.Or(*modes, "ipvs")))
	}
	if *soak != "" {
		p := b.lab()
		p.Args = append(b.test("sluice/test/soak", "-test.run=^TestDisruptions$", "-test.timeout=0").Args, strings.Fields(*soak)...)
		guests = append(guests, guest{"soak", []Program{p}, ""})
	}
	return guests
}

// test is a package's tests. They need no libraries.
func (b *builder) test(pkg string, args ...string) Program {
	b.Helper()
	if b.built[pkg] == "" {
		file := filepath.Join(b.TempDir(), strings.ReplaceAll(pkg, "/", "-")+".test")
		// Tests that need IPVS have a tag, because few machines have it.
		build := exec.CommandContext(b.Context(), "go", "test", "-c", "-tags=ipvs", "-ldflags=-s -w", "-o", file, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			b.Fatalf("build the tests of %s: %v\n%s", pkg, err, output)
		}
		if b.built == nil {
			b.built = map[string]string{}
		}
		b.built[pkg] = file
	}
	return Program{Args: slices.Concat([]string{b.built[pkg], "-test.v", programTime}, args), Env: []string{testkit.GuestVariable + "=1"}}
}

// lab is tests of package lab, with the real binary.
func (b *builder) lab(args ...string) Program {
	b.Helper()
	proxy, err := lab.Binary()
	if err != nil {
		b.Fatal(err)
	}
	p := b.test("sluice/test/lab", args...)
	p.Files = map[string]string{"kube-proxy": proxy, "testdata": *scenarios}
	p.Env = append(p.Env, lab.BinaryVariable+"="+filepath.Join(workDir, "kube-proxy"))
	return p
}

// scenarios are those of testdata here, or all.
func (b *builder) scenarios(env ...string) Program {
	b.Helper()
	p := b.lab("-test.run=^TestScenarios$", fmt.Sprint("-sample=", *sample))
	if *scenarios != "testdata" {
		p.Args = append(p.Args, "-test.timeout=0")
	}
	p.Env = append(p.Env, env...)
	return p
}
