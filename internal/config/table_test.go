package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"sluice/internal/config/configtest"
)

// leaves lists the paths of all fields that hold a value, as the file has them.
func leaves(t reflect.Type, prefix string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "TypeMeta":
		case f.Anonymous:
			out = append(out, leaves(f.Type, prefix)...)
		case f.Type.Kind() == reflect.Struct && isSection(f.Type):
			out = append(out, leaves(f.Type, prefix+name+".")...)
		default:
			out = append(out, prefix+name)
		}
	}
	return out
}

// isSection distinguishes a section of the configuration from a value such as a duration.
func isSection(t reflect.Type) bool {
	return strings.HasSuffix(t.Name(), "Configuration") || strings.HasSuffix(t.Name(), "Options")
}

// equal compares names with those of a table, which may have them more than once.
func equal(t *testing.T, what string, there, table []string) {
	t.Helper()
	slices.Sort(there)
	slices.Sort(table)
	if diff := cmp.Diff(there, slices.Compact(table)); diff != "" {
		t.Errorf("%s (-there +table):\n%s", what, diff)
	}
}

// Rows that lack a flag or a field have an empty one.
func TestTableIsComplete(t *testing.T) {
	fields := append(leaves(reflect.TypeFor[Configuration](), ""), "")
	for name := range effectiveGates {
		fields = append(fields, "featureGates."+string(name))
	}
	flags := []string{""}
	parse(t).set.VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	var fieldsOfRows, flagsOfRows []string
	for _, r := range configtest.Rows {
		fieldsOfRows, flagsOfRows = append(fieldsOfRows, r.Field), append(flagsOfRows, r.Flag)
	}
	equal(t, "fields and feature gates", fields, fieldsOfRows)
	equal(t, "flags", flags, flagsOfRows)
}

// eachField runs a test for each field of the table, and for each feature gate.
func eachField(t *testing.T, test func(*testing.T, configtest.Row)) {
	for _, r := range configtest.Rows {
		if r.Field != "" && r.Value != "" {
			t.Run(r.Field, func(t *testing.T) { test(t, r) })
		}
	}
}

// arguments returns settings as a command line.
func arguments(settings ...configtest.Setting) (args []string) {
	for _, s := range settings {
		args = append(args, s.Arg())
	}
	return args
}

func TestFlagsSetTheirFields(t *testing.T) {
	eachField(t, func(t *testing.T, r configtest.Row) {
		all := []configtest.Setting{r.Setting}
		for _, other := range configtest.Rows {
			if other.Flag == r.Flag && r.Flag != "" && r.Kind != configtest.Gate {
				all = append(all, other.To(r.Value))
			}
		}
		want, problems := decode(t, configtest.File(all...))
		if len(problems) > 0 || cmp.Equal(New(), want) {
			t.Errorf("%s is the default, or there are problems: %v", r.YAML(), problems)
		}
		if r.Flag == "" {
			return
		}
		if diff := cmp.Diff(want, parse(t, r.Arg()).Configuration); diff != "" {
			t.Errorf("configuration (-file +flag):\n%s", diff)
		}
	})
}

func TestFileOverridesFlagsButForLoggingAndTheNode(t *testing.T) {
	eachField(t, func(t *testing.T, r configtest.Row) {
		if r.Flag == "" {
			return
		}
		file := file(t, configtest.Line("clusterCIDR", "10.0.0.0/8"))
		want, _, err := parse(t, file).Load()
		if err != nil {
			t.Fatal(err)
		}
		var warns []string
		if strings.HasPrefix(r.Field, "logging.") || r.Field == "hostnameOverride" {
			at(want, r.Field).Set(at(parse(t, r.Arg()).Configuration, r.Field))
		} else {
			first := slices.IndexFunc(configtest.Rows, func(other configtest.Row) bool { return other.Flag == r.Flag })
			warns = []string{configtest.Rows[first].Field}
		}
		got, problems, err := parse(t, r.Arg(), file).Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("configuration (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(warns, fields(t, problems)); diff != "" {
			t.Errorf("fields with a warning (-want +got):\n%s", diff)
		}
	})
}

// A file that is edited while the proxy runs, and written.
func TestEveryFieldCanChange(t *testing.T) {
	eachField(t, func(t *testing.T, r configtest.Row) {
		flags := parse(t)
		before, err := flags.SettingsWith([]byte(configtest.File(r.With...)))
		if err != nil {
			t.Fatal(err)
		}
		update, err := flags.Update([]byte(configtest.File(append(r.With, r.Setting)...)), before)
		if err != nil || update.Blocked != nil {
			t.Fatal(err, update)
		}
		var live, restart []string
		switch {
		case r.Idle && r.With == nil:
		case r.Restart:
			restart = []string{r.Field}
		default:
			live = []string{r.Field}
		}
		if diff := cmp.Diff([][]string{live, restart}, [][]string{changed(update.Live), changed(update.Restart)}); diff != "" {
			t.Errorf("changes for the running process, and for a new one (-want +got):\n%s", diff)
		}
		if inForce, asked := shown(update.InForce), shown(update.Asked); r.Restart && !cmp.Equal(inForce, shown(before)) || !r.Restart && !cmp.Equal(inForce, asked) {
			t.Errorf("before:  %v\nasked:   %v\nin force: %v", shown(before), asked, inForce)
		}

		data, err := Encode(update.Asked.Configuration)
		if err != nil {
			t.Fatal(err)
		}
		again, problems := decode(t, string(data))
		if diff := cmp.Diff(update.Asked.Configuration, again); diff != "" || len(problems) > 0 {
			t.Errorf("%v, configuration (-written +read):\n%s", problems, diff)
		}
	})
}

func TestIdleFieldsAreNoted(t *testing.T) {
	eachField(t, func(t *testing.T, r configtest.Row) {
		check := func(want []string, with ...configtest.Setting) {
			t.Helper()
			s, err := settingsOf(arguments(append(with, r.Setting)...)...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, fields(t, s.Notes)); diff != "" {
				t.Errorf("with %v, fields with a note (-want +got):\n%s", with, diff)
			}
		}
		switch {
		case r.Flag == "":
			return
		case r.Idle:
			check([]string{r.Field})
		case r.With == nil:
			check(nil)
		}
		if r.With != nil {
			check(nil, r.With...)
		}
	})
}

func TestValuesAreAcceptedAndRefused(t *testing.T) {
	for _, r := range configtest.Rows {
		if r.Flag == "" {
			continue
		}
		t.Run(r.Name(), func(t *testing.T) {
			for _, value := range r.Accepted {
				if _, err := settingsOf(arguments(append(r.With, r.To(value))...)...); err != nil {
					t.Errorf("%q is refused: %v", value, err)
				}
			}
			for _, value := range r.Refused {
				_, err := settingsOf(arguments(append(r.With, r.To(value))...)...)
				if err == nil {
					t.Errorf("%q is accepted", value)
					continue
				}
				var errs Errors
				if !errors.As(err, &errs) && !strings.Contains(err.Error(), "--"+r.Flag) {
					t.Errorf("%q: the error does not name the flag: %v", value, err)
				}
				for _, field := range fields(t, errs) {
					if name, _, _ := strings.Cut(field, "["); name != r.Field {
						t.Errorf("%q: the error is about %s: %v", value, field, err)
					}
				}
			}
		})
	}
}
