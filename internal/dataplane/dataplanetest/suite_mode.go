package dataplanetest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// checkFields checks that the mode has what every mode needs.
func checkFields(t *testing.T, m dataplane.Mode) {
	if m.Name == "" || m.Open == nil || m.Configuration.Section == "" || m.Configuration.MasqueradeSection == "" {
		t.Errorf("Name, Open, Configuration.Section and Configuration.MasqueradeSection are required: %+v", m)
	}
	if m.Missing != nil {
		if err := m.Missing(); err != nil {
			t.Errorf("the tests need all modes: %v", err)
		}
	}
}

// checkRender checks that rendering is deterministic, and of the families that it is
// asked for.
func checkRender(t *testing.T, m dataplane.Mode) {
	render := func(families ...model.Family) string {
		t.Helper()
		var b strings.Builder
		if err := m.Render(&b, variety(m), dataplane.RenderOptions{Families: families}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	both := render(model.Families[:]...)
	if missing := unmentioned(both, variety(m)); len(missing) > 0 {
		t.Errorf("%v are not in\n%s", missing, both)
	}
	for range 10 {
		if diff := cmp.Diff(both, render(model.Families[:]...)); diff != "" {
			t.Fatalf("rendered twice:\n%s", diff)
		}
	}
	for i, family := range model.Families {
		text := render(family)
		for k := range variety(m).Frontends {
			if !k.NodePort() && mentions(text, k) != (k.Family() == family) {
				t.Errorf("rendered for %v, family %d: %s is mentioned: %v", family, i, k, mentions(text, k))
			}
		}
	}
}
