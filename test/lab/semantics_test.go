//go:build linux

package lab_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each line of the threat model and each vulnerability in docs/security.md names tests, which exist.
func TestSecurityClaimsHaveTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests []byte
	err = filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			var more []byte
			more, err = os.ReadFile(path)
			tests = append(tests, more...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	_, claims, _ := strings.Cut(string(text), "## Who can do what")
	row := regexp.MustCompile(`(?m)^\| .*\| ([^|]*)\|$`)
	for _, m := range row.FindAllStringSubmatch(claims, -1) {
		if !strings.Contains(m[1], "`") && strings.TrimSpace(m[1]) != "tests" {
			t.Errorf("no test holds %s", m[0])
		}
		for _, quoted := range regexp.MustCompile("`([A-Za-z0-9-]+)`").FindAllStringSubmatch(m[1], -1) {
			name := quoted[1]
			if strings.HasPrefix(name, "Test") {
				named++
				if !strings.Contains(string(tests), "func "+name+"(") {
					t.Errorf("there is no test %s", name)
				}
			} else if _, err := os.Stat("testdata/" + name + ".txtar"); err != nil {
				t.Errorf("there is no scenario %s", name)
			}
		}
	}
	if named == 0 {
		t.Error("no test is named")
	}
}

// Every line of docs/semantics.md names the scenarios that show it, and every
// scenario names the lines it shows: the two must agree.
func TestSemanticsHaveScenarios(t *testing.T) {
	documented := map[string][]string{}
	text, err := os.ReadFile("../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*\\| ([a-z0-9, -]*) *\\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = list(m[2])
	}

	claimed := map[string][]string{}
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	tag := regexp.MustCompile(`(?m)^# semantics: (.*)$`)
	for _, path := range scripts {
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tags := tag.FindAllStringSubmatch(string(script), -1)
		if len(tags) == 0 {
			t.Errorf("%s does not say which line it shows", path)
		}
		for _, m := range tags {
			for _, slug := range list(m[1]) {
				claimed[slug] = append(claimed[slug], strings.TrimSuffix(filepath.Base(path), ".txtar"))
			}
		}
	}
	for slug, scenarios := range documented {
		if len(scenarios) == 0 {
			t.Errorf("no scenario shows %s", slug)
		}
	}
	for _, m := range []map[string][]string{documented, claimed} {
		for slug := range m {
			slices.Sort(m[slug])
		}
	}
	if diff := cmp.Diff(claimed, documented); diff != "" {
		t.Errorf("what scenarios claim (-) is not what docs/semantics.md says (+):\n%s", diff)
	}
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
