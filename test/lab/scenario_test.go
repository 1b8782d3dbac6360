package lab_test

import (
	"os"
	"strings"
	"testing"

	"sluice/internal/source/manifest"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// modesVariable names the environment variable with the modes to run the
// scenarios in, separated by commas.
const modesVariable = "SLUICE_MODES"

// sideBySide bounds how many scenarios run at once: each has its own lab.
const sideBySide = 4

func TestScenarios(t *testing.T) {
	scripts, err := scenario.LoadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) == 0 {
		t.Fatal("there are no scenarios")
	}
	if _, err := lab.Binary(); err != nil {
		t.Fatal(err)
	}
	if err := lab.Sweep(); err != nil {
		t.Errorf("remove leftovers of earlier labs: %v", err)
	}
	modes := "nftables"
	if wanted := os.Getenv(modesVariable); wanted != "" {
		modes = wanted
	}
	slots := make(chan struct{}, sideBySide)
	for mode := range strings.SplitSeq(modes, ",") {
		t.Run(mode, func(t *testing.T) {
			for _, s := range scripts {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					slots <- struct{}{}
					defer func() { <-slots }()
					o := scenario.Options{Mode: mode, Digest: manifest.Digest, Logf: t.Logf}
					if err := s.Run(t.Context(), o); err != nil {
						t.Errorf("%s\n%v", s.Title, err)
					}
				})
			}
		})
	}
}
