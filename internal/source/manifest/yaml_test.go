package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestYAMLMeansWhatItMeansToKubectl(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"scalars", "[a, 'b', \"c\\n\", 1, -1, 0x10, 1_000, 1.5, 010, true, False, null, ~, '', 12345678901234567890]",
			`["a","b","c\n",1,-1,16,1000,1.5,8,true,false,null,null,"",12345678901234567890]`},
		{"booleans of YAML 1.1", "[yes, No, on, OFF, y, N, 'yes', \"no\"]", `[true,false,true,false,true,false,"yes","no"]`},
		{"times are strings", "[2024-01-01, 2024-01-01T00:00:00Z]", `["2024-01-01","2024-01-01T00:00:00Z"]`},
		{"keys that are not strings", "{1: a, true: b, ~: c}", `{"1":"a","true":"b","~":"c"}`},
		{"letters of all kinds", `{a: "é\"\\<"}`, `{"a":"é\"\\\u003c"}`},
		{"block text", "a: |\n  x\n  y\nb: >\n  x\n  y\n", `{"a":"x\ny\n","b":"x y\n"}`},
		{"repeated keys stay", "{a: 1, a: 2}", `{"a":1,"a":2}`},
		{"aliases", "{a: &a [1], b: *a, &k c: *k}", `{"a":[1],"b":[1],"c":"c"}`},
		{"merges, own keys first", "a: &a {x: 1, y: 2}\nb: {y: 3, <<: *a}", `{"a":{"x":1,"y":2},"b":{"y":3,"x":1}}`},
		{"merges of several", "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc: {<<: [*a, *b]}", `{"a":{"x":1},"b":{"x":2,"z":3},"c":{"x":1,"z":3}}`},
		{"nothing", "# only a comment", `null`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := yamlToJSON([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
