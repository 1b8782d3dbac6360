//go:build linux

package flags

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"sluice/internal/config"
	"sluice/internal/config/configtest"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// A setting that makes no difference is not connected to its purpose, however well
// both ends are tested.
func TestEveryFlagMakesADifference(t *testing.T) {
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("table", func(t *testing.T) { testTableIsComplete(t, binary) })
	b := newBench(t, binary)
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range runs {
		all.Go(func() { t.Run(r.name, func(t *testing.T) { b.run(t, r, false) }) })
		if r.byFile && !testkit.Short() {
			all.Go(func() { t.Run(r.name+" by file", func(t *testing.T) { b.run(t, r, true) }) })
		}
	}
	for _, r := range table() {
		if r.alone != nil {
			all.Go(func() { t.Run(r.Flag, func(t *testing.T) { r.alone(t, b) }) })
		}
	}
}

// testTableIsComplete compares the table with that of all flags and fields, and with the binary.
func testTableIsComplete(t *testing.T, binary string) {
	rows, there := table(), allFlags(t, binary)
	has := func(name func(setting) string, wanted string) bool {
		return slices.ContainsFunc(rows, func(r row) bool { return name(r.setting) == wanted })
	}
	for _, r := range rows {
		if r.alone == nil && r.see == nil && r.without == "" {
			t.Errorf("the row of %s shows nothing", r)
		}
		for _, name := range []string{r.in, r.against} {
			if r.see != nil && !slices.ContainsFunc(runs, func(r run) bool { return r.name == name }) {
				t.Errorf("the row of %s is about the run %q, which is not there", r, name)
			}
		}
		if r.without != "" && !strings.Contains(usage(r.Flag), r.without) {
			t.Errorf("--%s should do nothing, but its help does not say %q: %s", r.Flag, r.without, usage(r.Flag))
		}
		if r.Flag != "" && !slices.Contains(there, r.Flag) {
			t.Errorf("there is no --%s any more", r.Flag)
		}
	}
	for _, name := range there {
		if !has(func(s setting) string { return s.Flag }, name) {
			t.Errorf("the table has no row that shows what --%s does", name)
		}
	}
	for _, r := range configtest.Rows {
		if !has(setting.Name, r.Name()) {
			t.Errorf("the table has no row that shows what %s does", r.Name())
		}
	}
}

var inHelp = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`)

// allFlags are those that the help lists, and those that it hides.
func allFlags(t *testing.T, binary string) []string {
	t.Helper()
	help := (&bench{binary: binary}).command(t, nil, "--help")
	var names []string
	for _, m := range inHelp.FindAllStringSubmatch(help.output, -1) {
		names = append(names, m[1])
	}
	if len(names) < 50 {
		t.Errorf("the help lists few flags:\n%s", help.output)
	}
	ofConfig().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			names = append(names, f.Name)
		}
	})
	return names
}

func ofConfig() *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(set)
	return set
}

func usage(flag string) string {
	if f := ofConfig().Lookup(flag); f != nil {
		return f.Usage
	}
	return ""
}
