//go:build linux

package lab_test

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// inEachMode runs a test in the modes that the kernel supports, each in parallel.
func inEachMode(t *testing.T, test func(t *testing.T, mode string)) {
	for _, mode := range scenario.ModesFor(t.Name()) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			requireSupport(t, mode)
			test(t, mode)
		})
	}
}

// requireSupport skips a test of a mode that this machine's kernel cannot run.
func requireSupport(t *testing.T, mode string) {
	t.Helper()
	m, ok := scenario.Modes[mode]
	if !ok {
		t.Fatalf("unknown mode %q: have %v", mode, scenario.ModeNames())
	}
	if err := m.Supported(t.Context()); err != nil {
		t.Skipf("test/vm runs this mode: %v", err)
	}
}

// failures returns the errors in the log of a proxy that are its own: not what it says of
// its configuration and of objects.
func failures(p *lab.Proxy) (out []string) {
	for line := range strings.Lines(p.Log().String()) {
		if strings.HasPrefix(line, "E") && !strings.Contains(line, `"Warning: `) && !strings.Contains(line, `"Problem with an object"`) {
			out = append(out, line)
		}
	}
	return out
}

// startProxy starts the proxy in a mode, on a node prepared for it.
func startProxy(t *testing.T, l *lab.Lab, mode string, o lab.ProxyOptions) *lab.Proxy {
	t.Helper()
	m := scenario.Modes[mode]
	if err := m.PrepareNode(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	o.Flags = slices.Concat([]string{"--proxy-mode", m.Name}, m.Flags, o.Flags)
	return launch(t, l, o)
}

// launch starts the proxy. If the test fails, it shows the proxy's log.
func launch(t *testing.T, l *lab.Lab, o lab.ProxyOptions) *lab.Proxy {
	t.Helper()
	p, err := l.StartProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the proxy's log:\n%s", p.Log())
		}
	})
	return p
}

var sample = flag.Int("sample", 1, "try only one in so many flows of each line of a scenario, and those less often")

// sampleFor samples the flows of other modes than the preferred one: what they are led to is the same.
func sampleFor(mode string, s *scenario.Script) int {
	switch {
	case s.Judges(): // all of them count
		return 1
	case mode == scenario.ModeNames()[0]:
		return *sample
	}
	return max(*sample, testkit.Extent(2, 2, 1))
}

func TestScenarios(t *testing.T) {
	t.Parallel()
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
	runs := map[string][]*scenario.Script{}
	for _, s := range scripts {
		for _, mode := range scenario.ModesFor(s.Name) {
			runs[mode] = append(runs[mode], s)
		}
	}
	for mode, scripts := range runs {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			requireSupport(t, mode)
			for _, s := range scripts {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					o := scenario.Options{Mode: mode, Digest: lab.Digest, Sample: sampleFor(mode, s), Logf: t.Logf}
					if err := s.Run(t.Context(), o); err != nil {
						t.Errorf("%s\n%v", s.Title, err)
					}
				})
			}
		})
	}
}
