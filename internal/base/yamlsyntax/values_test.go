package yamlsyntax

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type shape struct {
	Name  string `json:"name"`
	Ports []struct {
		Port int32 `json:"port"`
	} `json:"ports"`
	Notes map[string]string `json:"notes"`
	After *metav1.Duration  `json:"after"`
	Free  any               `json:"-"`
}

func TestMisfits(t *testing.T) {
	tests := []struct {
		raw  string
		want []Misfit
	}{
		{`{"name": "a", "ports": [{"port": 80}], "notes": {"a": "b"}, "after": "5s", "other": 1}`, nil},
		{`{"name": 5}`, []Misfit{{"name", "there is a number where a string belongs", "put the value in quotes"}}},
		{`{"ports": [{"port": 80}, {"port": "80"}]}`, []Misfit{{"ports[1].port", "there is a string where a whole number belongs", "write the number without quotes"}}},
		{`{"ports": "a", "notes": {"a": true}}`, []Misfit{
			{"notes.a", "there is a boolean where a string belongs", "put the value in quotes"},
			{"ports", "there is a string where a list belongs", `write ["a"]`},
		}},
		{`{"after": 5}`, []Misfit{{"after", "there is a number where a duration belongs", "write 5s for seconds"}}},
		{`[1]`, nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, Misfits([]byte(tt.raw), reflect.TypeFor[shape]())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.raw, diff)
		}
	}
}

func TestMisfitsAreBounded(t *testing.T) {
	raw := `{"notes": {` + strings.Repeat(`"a": {}, `, 5) + `"b": 1}, "ports": [` + strings.Repeat(`{"port": {}}, `, 500) + `1]}`
	if n := len(Misfits([]byte(raw), reflect.TypeFor[shape]())); n != maxMisfits {
		t.Errorf("%d are found, want %d", n, maxMisfits)
	}
}
