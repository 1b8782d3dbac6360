package yamlsyntax

import (
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestMistakesAreFoundWhereTheyAre(t *testing.T) {
	const remedy = "correct the syntax there or above it: indentation, brackets or quotes"
	for _, tt := range []struct {
		name, text string
		want       Mistake
	}{
		{"tab", "a:\n\tb: 1\n", Mistake{2, "the line is indented with a tab, which YAML does not allow", "indent it with spaces"}},
		{"bracket", "a: 1\nb: [1, 2\nc: 3\n", Mistake{2, "it cannot be parsed: did not find expected ',' or ']'", remedy}},
		{"indentation", "a: 1\n b: 2\n", Mistake{2, "it cannot be parsed: mapping values are not allowed in this context", remedy}},
		{"something else", "a: 1\nb: *c\n", Mistake{0, "it cannot be parsed: unknown anchor 'c' referenced", remedy}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := yaml.YAMLToJSON([]byte(tt.text))
			if err == nil {
				t.Fatal("it can be parsed")
			}
			line, reason := Position(err)
			if got := Explain([]byte(tt.text), line, reason); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestFieldsAreLocated(t *testing.T) {
	f := Locate([]byte("a: 1\nb:\n- c: 2\n- c: 3\n  d: {e: 4, e: 5}\na: 6\n"))
	for path, want := range map[string]int{"a": 6, "b": 2, "b[0].c": 3, "b[1].c": 4, "b[1].d.e": 5, "b[1].x": 4, "y.z": 1} {
		if got := f.Line(path); got != want {
			t.Errorf("%s is in line %d, want %d", path, got, want)
		}
	}
	if want := []string{"b[1].d.e", "a"}; !slices.Equal(f.Repeated, want) {
		t.Errorf("repeated are %v, want %v", f.Repeated, want)
	}
	if got := Locate([]byte("a: [")).Line("a"); got != 0 {
		t.Errorf("a document that cannot be parsed has a field in line %d", got)
	}
}
