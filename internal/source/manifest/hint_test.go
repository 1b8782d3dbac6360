package manifest

import (
	"strings"
	"testing"

	"sluice/internal/source"
)

// TestMistakesAreExplained checks that mistakes are found where they are, and that the
// remedy is for the mistake that was made.
func TestMistakesAreExplained(t *testing.T) {
	const head = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
	for _, tt := range []struct {
		name, text string
		want       string // the whole problem, without the file and the document
	}{
		{"misspelt field", head + "spec:\n  clusterip: 10.96.0.1\n  ports: [{port: 80}]\n",
			"line 5: Service default/web: spec.clusterip: Service has no such field (did you mean clusterIP?)"},
		{"misspelt field of a port", head + "spec:\n  clusterIP: 10.96.0.1\n  ports:\n  - port: 80\n    protocl: TCP\n",
			"line 8: Service default/web: spec.ports[0].protocl: Service has no such field (did you mean protocol?)"},
		{"field that is too far left", head + "ports: [{port: 80}]\nspec:\n  clusterIP: 10.96.0.1\n",
			"line 4: Service default/web: ports: Service has no such field (it belongs below spec: indent it further)"},
		{"field that is too far right", head + "spec:\n  clusterIP: 10.96.0.1\n  ports:\n  - port: 80\n    externalIPs: [192.0.2.1]\n",
			"line 8: Service default/web: spec.ports[0].externalIPs: Service has no such field (it belongs one level higher: indent it less)"},
		{"unknown field", head + "spec:\n  clusterIP: 10.96.0.1\n  ports: [{port: 80}]\n  colour: blue\n",
			"line 7: Service default/web: spec.colour: Service has no such field (remove the field or correct its name)"},
		{"number in quotes", head + "spec:\n  clusterIP: 10.96.0.1\n  ports:\n  - port: 443\n    name: a\n  - name: b\n    port: \"80\"\n",
			"line 10: Service default/web: spec.ports[1].port: there is a string where a whole number belongs (write the number without quotes)"},
		{"several values of wrong types", head + "spec:\n  clusterIP: [10.96.0.1]\n  ports:\n  - port: http\n    targetPort: [80]\n",
			`line 5: Service default/web: spec.clusterIP: there is a list where a string belongs (write "10.96.0.1")` + "\n" +
				"line 7: Service default/web: spec.ports[0].port: there is a string where a whole number belongs (write a whole number)\n" +
				"line 8: Service default/web: spec.ports[0].targetPort: cannot unmarshal array into Go value of type int32 (correct the value)"},
		{"number for an annotation", strings.Replace(head, "{name: web}", "{name: web, annotations: {a: 1}}", 1) + "spec:\n  clusterIP: 10.96.0.1\n  ports: [{port: 80}]\n",
			"line 3: Service default/web: metadata.annotations.a: there is a number where a string belongs (put the value in quotes)"},
		{"wrong indentation", head + " spec:\n  clusterIP: 10.96.0.1\n",
			"line 3: document: it cannot be parsed: did not find expected key (correct the syntax there or above it: indentation, brackets or quotes)"},
		{"wrong indentation further down", head + "spec:\n  clusterIP: 10.96.0.1\n   ports: [{port: 80}]\n",
			"line 6: document: it cannot be parsed: mapping values are not allowed in this context (correct the syntax there or above it: indentation, brackets or quotes)"},
		{"tab", head + "spec:\n\tclusterIP: 10.96.0.1\n",
			"line 5: document: the line is indented with a tab, which YAML does not allow (indent it with spaces)"},
		{"bracket that is not closed", "apiVersion: v1\nkind: Service\nmetadata: {name: web\nspec:\n  clusterIP: 10.96.0.1\n",
			"line 3: document: it cannot be parsed: did not find expected ',' or '}' (correct the syntax there or above it: indentation, brackets or quotes)"},
		{"long name", strings.Replace(head, "web", strings.Repeat("a", 64), 1) + "spec:\n  clusterIP: 10.96.0.1\n  ports: [{port: 80}]\n",
			"line 3: Service default/" + strings.Repeat("a", 64) + `: metadata.name: "` + strings.Repeat("a", 64) + `" is not a valid name: must be no more than 63 characters (use a shorter name)`},
		{"misspelt kind", "apiVersion: v1\nkind: Sevrice\nmetadata: {name: web}\n",
			"line 2: Sevrice default/web: kind: there is no kind Sevrice (did you mean kind: Service?)"},
		{"other kind", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", ""},
		{"other group", "apiVersion: example.com/v1\nkind: Services\nmetadata: {name: web}\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := decodeFile("a.yaml", []byte(tt.text), source.Proxy{NodeName: "node1"}, nil)
			got := ""
			for i, p := range d.problems {
				if i > 0 {
					got += "\n"
				}
				got += strings.TrimPrefix(p.String(), "a.yaml: document 1, ")
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
