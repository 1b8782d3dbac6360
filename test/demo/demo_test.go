//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"sluice/internal/source"
	"sluice/internal/source/manifest"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

const examples = "../../examples"

func TestExamplesHaveNoProblems(t *testing.T) {
	content, err := manifest.Load(examples, source.Proxy{NodeName: "node1"})
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
	if err := run(t.Context(), &out, options{binary: binary, examples: examples}); err != nil {
		t.Fatalf("%v\nThe demo said:\n%s", err, out.String())
	}
	for _, s := range steps {
		if !strings.Contains(out.String(), s.title) {
			t.Errorf("the demo did not show %q", s.title)
		}
	}
	if !strings.Contains(out.String(), "REFUSED (rejected): the Service has no endpoint") {
		t.Errorf("the demo does not show why a Service does not work:\n%s", out.String())
	}
	for _, bad := range []string{"dropped", "passed", "failed", "broke"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("connections %s in the demo:\n%s", bad, out.String())
		}
	}
}

// With -keep, the page can be seen from this machine until the demo is interrupted.
func TestKeptLabHasAPage(t *testing.T) {
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, in, options{binary: binary, examples: examples, keep: true})
		ended <- err
		in.CloseWithError(io.EOF)
	}()
	url, seen := "", false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if at := regexp.MustCompile(`http://\S+`).FindString(lines.Text()); at != "" {
			url = at
		}
		// The last line: whoever writes it is not waiting for the next one to be read.
		if strings.Contains(lines.Text(), "Ctrl-C") {
			seen = true
			expectPage(t, url)
			interrupt()
		}
	}
	if !seen {
		t.Error("the demo did not stay")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// expectPage fetches the page and looks for the Service web.
func expectPage(t *testing.T, url string) {
	t.Helper()
	client := http.Client{Timeout: testkit.Scaled(testkit.Timeout)}
	r, err := client.Get(url)
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(text), "web") {
		t.Errorf("the page does not show web: %v\n%s", err, text)
	}
}
