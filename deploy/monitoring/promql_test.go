package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// uses is what an expression of PromQL names.
type uses struct {
	metrics []string
	// labels are those in braces and in lists such as by (...).
	labels []string
	// values are those that labels in braces are compared with.
	values map[string][]string
}

// tokens are strings, names, numbers with or without a unit, and signs.
var tokens = regexp.MustCompile(`"[^"]*"|[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+[a-z]*|\$[a-z_]+|[=!]~|[=!<>]=|\S`)

var (
	name     = regexp.MustCompile(`^[a-zA-Z_:]`)
	keywords = []string{"and", "or", "unless", "bool", "offset"}
	lists    = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
)

// namesIn finds what an expression names. It knows as much of the language as
// that takes: whether an expression is sound is for Prometheus to say.
func namesIn(expr string) uses {
	u := uses{values: map[string][]string{}}
	all := tokens.FindAllString(expr, -1)
	next := func(i int) string {
		if i+1 < len(all) {
			return all[i+1]
		}
		return ""
	}
	skip := func(i int, end string) int {
		for i < len(all) && all[i] != end {
			i++
		}
		return i
	}
	for i := 0; i < len(all); i++ {
		switch t := all[i]; {
		case t == "[":
			i = skip(i, "]")
		case t == "{":
			for end := skip(i, "}"); i < end; i++ {
				if name.MatchString(all[i]) {
					u.labels = append(u.labels, all[i])
					u.values[all[i]] = append(u.values[all[i]], strings.Split(strings.Trim(all[i+2], `"`), "|")...)
				}
			}
		case slices.Contains(lists, t):
			for end := skip(i, ")"); i < end; i++ {
				if name.MatchString(all[i]) && all[i] != t {
					u.labels = append(u.labels, all[i])
				}
			}
		case t == "label_values":
			// Its last argument is a label.
			end := skip(i, ")")
			inner := namesIn(strings.Join(all[i+2:end-2], " "))
			u.metrics = append(u.metrics, inner.metrics...)
			u.labels = append(append(u.labels, inner.labels...), all[end-1])
			i = end
		case name.MatchString(t) && !slices.Contains(keywords, t) && !slices.Contains([]string{"(", "by", "without"}, next(i)):
			u.metrics = append(u.metrics, t)
		}
	}
	return u
}

func TestNamesInExpressionsAreFound(t *testing.T) {
	tests := []struct {
		name, in string
		want     uses
	}{
		{"a metric", `up > 0`, uses{metrics: []string{"up"}}},
		{"functions and ranges", `rate(a_total[5m]) / 2 and b offset 1h`, uses{metrics: []string{"a_total", "b"}}},
		{"labels", `a{x="1",y=~"p|q"}`, uses{metrics: []string{"a"}, labels: []string{"x", "y"},
			values: map[string][]string{"x": {"1"}, "y": {"p", "q"}}}},
		{"lists of labels", `sum by (x, y) (a) * on (z) b`, uses{metrics: []string{"a", "b"}, labels: []string{"x", "y", "z"}}},
		{"variables", `a{x=~"$x"}[$__rate_interval]`, uses{metrics: []string{"a"}, labels: []string{"x"},
			values: map[string][]string{"x": {"$x"}}}},
		{"values of a label", `label_values(a{x="1"}, y)`, uses{metrics: []string{"a"}, labels: []string{"x", "y"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := namesIn(tt.in)
			if tt.want.values == nil {
				got.values = nil
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(uses{})); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}
