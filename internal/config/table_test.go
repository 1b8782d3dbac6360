package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestTableHasEachFieldOnce(t *testing.T) {
	want := leaves(reflect.TypeFor[Configuration](), "")
	var got []string
	for _, s := range settings {
		got = append(got, s.path)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-configuration +table):\n%s", diff)
	}
}

func TestTablePathsExist(t *testing.T) {
	c := New()
	for _, s := range settings {
		for _, path := range append([]string{s.path}, s.also...) {
			if field := at(c, path); !field.IsValid() || !field.CanSet() {
				t.Errorf("there is no field %s", path)
			}
		}
	}
}

func TestEveryFieldHasText(t *testing.T) {
	c := New()
	for _, s := range settings {
		if got := text(at(c, s.path)); got == "" {
			t.Errorf("%s is shown as nothing", s.path)
		}
	}
}
