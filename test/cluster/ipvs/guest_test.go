//go:build amd64 && !guest

package ipvs

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/cluster/apiserver"
	"sluice/test/lab"
	"sluice/test/vm"
)

// These end a guest that hangs, when it tests or measures.
const (
	guestTime   = 15 * time.Minute
	measureTime = 2 * time.Hour
)

var (
	measure    = flag.Bool("measure", false, "measure cold starts in guests, instead of testing")
	migrations = flag.String("migrations", "", "migrations to try, as for -run; if empty, one that stands for all, or all if everything is tested")
)

func TestGuests(t *testing.T) {
	testkit.NotShort(t, "each migration takes an emulated processor a minute")
	binaries, err := apiserver.Build(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := vm.OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := vm.Kernels(t.Context(), cache, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if !testkit.Full() {
		kernels = kernels[len(kernels)-1:] // package vm has the tests of ipvs mode there as well
	}
	if *migrations == "" {
		*migrations = testkit.Extent("", "^TestFromUpstreamAndBack$/^nftables$", ".")
	}
	dir := t.TempDir()
	own, tests := filepath.Join(dir, ownBinary), filepath.Join(dir, "ipvs.test")
	build(t, "build", "-C", "../../..", "-buildvcs=false", "-ldflags", "-s -w", "-o", own, "./cmd/kube-proxy")
	build(t, "test", "-c", "-tags", "guest", "-ldflags", "-s -w", "-o", tests, ".")
	p := vm.Program{
		Args:  []string{tests, "-test.v", "-test.timeout=10m", "-test.run=" + *migrations},
		Files: map[string]string{ownBinary: own, upstreamBinary: binaries.KubeProxy},
		Env:   []string{lab.BinaryVariable + "=" + ownBinary},
	}
	limit := guestTime
	if *measure {
		limit = measureTime
		p.Args = []string{tests, "-test.run=^$", "-test.bench=.", "-test.benchtime=1x", "-test.timeout=1h"}
	}
	accelerator := vm.ChooseAccelerator(t.Context(), kernels[0])
	for _, k := range kernels {
		t.Run(k.Release, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := testkit.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := vm.Boot(ctx, k, accelerator, t.Output(), p); err != nil {
				t.Error(err)
			}
		})
	}
}

// build runs the go command, for binaries that need no libraries.
func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", slices.Concat(args), err, output)
	}
}
