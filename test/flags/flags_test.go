package flags

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"sluice/internal/config"
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
		if r.byFile {
			all.Go(func() { t.Run(r.name+" by file", func(t *testing.T) { b.run(t, r, true) }) })
		}
	}
	for _, r := range table() {
		if r.alone != nil {
			all.Go(func() { t.Run(r.flag, func(t *testing.T) { r.alone(t, b) }) })
		}
	}
}

// testTableIsComplete compares the table with the binary.
func testTableIsComplete(t *testing.T, binary string) {
	var flags, fields, gates []string
	for _, r := range table() {
		flags, fields, gates = append(flags, r.flag), append(fields, r.field), append(gates, r.gate)
		if r.alone == nil && r.see == nil && r.without == "" {
			t.Errorf("the row of %s shows nothing", r)
		}
		for _, name := range []string{r.in, r.against} {
			if r.see != nil && !slices.ContainsFunc(runs, func(r run) bool { return r.name == name }) {
				t.Errorf("the row of %s is about the run %q, which is not there", r, name)
			}
		}
		if r.without != "" && !strings.Contains(usage(r.flag), r.without) {
			t.Errorf("--%s should do nothing, but its help does not say %q: %s", r.flag, r.without, usage(r.flag))
		}
	}
	same(t, "flags", allFlags(t, binary), flags)
	same(t, "fields", allFields(reflect.TypeFor[config.Configuration](), ""), fields)
	same(t, "feature gates", effectiveGates(t), gates)
}

// allFields returns the paths of all fields of the configuration that hold a value.
func allFields(section reflect.Type, prefix string) (paths []string) {
	for i := range section.NumField() {
		f := section.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "TypeMeta":
		case f.Anonymous:
			paths = append(paths, allFields(f.Type, prefix)...)
		case f.Type.Kind() == reflect.Struct && (strings.HasSuffix(f.Type.Name(), "Configuration") || strings.HasSuffix(f.Type.Name(), "Options")):
			paths = append(paths, allFields(f.Type, prefix+name+".")...)
		default:
			paths = append(paths, prefix+name)
		}
	}
	return paths
}

// effectiveGates returns the feature gates that have an effect, as the help names them.
func effectiveGates(t *testing.T) []string {
	t.Helper()
	_, names, found := strings.Cut(usage("feature-gates"), "those that matter here are ")
	if !found {
		t.Fatal("the help of --feature-gates does not name the gates that matter")
	}
	return strings.Split(strings.TrimSuffix(names, "."), ", ")
}

func same(t *testing.T, what string, there, inTable []string) {
	t.Helper()
	for _, name := range there {
		if !slices.Contains(inTable, name) {
			t.Errorf("%s: the table has no row that shows what %s does", what, name)
		}
	}
	for _, name := range inTable {
		if name != "" && !slices.Contains(there, name) {
			t.Errorf("%s: there is no %s any more", what, name)
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
