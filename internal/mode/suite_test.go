package mode_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/mode"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/testkit"
)

var (
	seed      = randomworld.SeedFlag()
	histories = flag.Duration("histories", 0, "how long to try random histories in each mode and variant")
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mode-test")
	if err != nil {
		panic(err)
	}
	// The host's lock is shared by all network namespaces.
	os.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "lock"))
	mode.All = append(mode.All, dataplanetest.Toy)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestSuite(t *testing.T) {
	o := dataplanetest.SuiteOptions{
		Seed:      *seed,
		Histories: testkit.ExtentOr(*histories, 3*time.Second, 15*time.Second, time.Minute),
	}
	for _, m := range mode.All {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			dataplanetest.Suite(t, m, o)
		})
	}
}
