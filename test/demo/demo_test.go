package main

import (
	"bytes"
	"strings"
	"testing"

	"sluice/internal/source/manifest"
	"sluice/test/lab"
)

const examples = "../../examples"

func TestExamplesHaveNoProblems(t *testing.T) {
	content, err := manifest.Load(examples, "node1")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range content.Problems {
		t.Error(p)
	}
	if content.Objects == 0 {
		t.Error("there are no objects in the examples")
	}
}

func TestDemoRunsToItsEnd(t *testing.T) {
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, binary, examples); err != nil {
		t.Fatalf("%v\nThe demo said:\n%s", err, out.String())
	}
	for _, s := range steps {
		if !strings.Contains(out.String(), s.title) {
			t.Errorf("the demo did not show %q", s.title)
		}
	}
	for _, bad := range []string{"dropped", "passed", "failed", "broke"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("connections %s in the demo:\n%s", bad, out.String())
		}
	}
}
