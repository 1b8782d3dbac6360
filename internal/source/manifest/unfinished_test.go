package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestHalfWrittenFileKeepsItsContentForAWhile(t *testing.T) {
	two := svc("a", "10.96.0.1") + "---\n" + svc("b", "10.96.0.2")
	inJSON := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}`
	tests := []struct {
		name, file, before, now string
		left                    int // Services in the end
		problem                 string
	}{
		{"emptied", "m.yaml", two, "", 0, "m.yaml: file m.yaml: it became empty, which removed 2 objects (write it again, or delete it if that is meant)"},
		{"emptied JSON", "m.json", inJSON, "", 0, "m.json: file m.json: it became empty, which removed 1 object (write it again, or delete it if that is meant)"},
		{"only a comment is there yet", "m.yaml", two, "# Services\n", 0, "it became empty, which removed 2 objects"},
		{"cut in a line of the first document", "m.yaml", two, svc("a", "10.96.0.1")[:20], 2, "m.yaml: document 1"},
		{"cut in a line, and still an object", "m.yaml", two, strings.TrimSuffix(svc("a", "10.96.0.1"), "\n"), 1, "it ends inside a document, which removed 1 object"},
		{"cut in a line, with another value", "m.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports: [{port: 80}]\n  clusterIP: 10.96.0.11\n",
			"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports: [{port: 80}]\n  clusterIP: 10.96.0.1", 1, ""},
		{"cut JSON", "m.json", inJSON, inJSON[:40], 1, "m.json: document 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory(t, tt.file, tt.before)
			services := func() (n int) {
				for range h.state.Services() {
					n++
				}
				return n
			}
			before := services()
			h.write(tt.file, tt.now)
			for _, wait := range []time.Duration{0, time.Second, graceTime - time.Second - 1} {
				if got := h.loadAfter(wait); len(got.Events) > 0 || len(got.Problems) > 0 || services() != before {
					t.Fatalf("after %s: events %v, problems %v", wait, got.Events, got.Problems)
				}
			}
			if wait, ok := h.loader.graceLeft(h.now); !ok || wait != 1 {
				t.Errorf("grace ends in %d ns (%t), want 1", wait, ok)
			}
			got := h.loadAfter(1)
			if services() != tt.left {
				t.Errorf("%d Services are left, want %d", services(), tt.left)
			}
			if wait, ok := h.loader.graceLeft(h.now); ok {
				t.Errorf("still waiting for %s", wait)
			}
			switch {
			case tt.problem == "" && len(got.Problems) == 0:
			case tt.problem == "" || len(got.Problems) != 1 || !strings.Contains(got.Problems[0].String(), tt.problem):
				t.Errorf("problems %v, want %q", got.Problems, tt.problem)
			}
			h.write(tt.file, tt.before)
			if got := h.load(); services() != before || len(got.Problems) > 0 {
				t.Errorf("written again: %d Services, problems %v", services(), got.Problems)
			}
		})
	}
}

// TestWhatIsTakenAtOnce are changes that do not look half written.
func TestWhatIsTakenAtOnce(t *testing.T) {
	two := svc("a", "10.96.0.1") + "---\n" + svc("b", "10.96.0.2")
	for name, change := range map[string]struct{ before, now string }{
		"a document less":                       {two, svc("a", "10.96.0.1")},
		"a last line that was never complete":   {strings.TrimSuffix(two, "\n"), strings.TrimSuffix(svc("a", "10.96.0.3"), "\n")},
		"the first objects, without a last end": {"", strings.TrimSuffix(two, "\n")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, "m.yaml", change.before)
			h.write("m.yaml", change.now)
			if got := h.load(); len(got.Events) == 0 || len(got.Problems) > 0 {
				t.Errorf("events %v, problems %v", got.Events, got.Problems)
			}
		})
	}
	t.Run("a deleted file", func(t *testing.T) {
		h := newHistory(t, "m.yaml", two)
		h.write("m.yaml", "")
		h.load()
		h.remove("m.yaml")
		if got := h.load(); len(got.Events) != 2 || len(got.Problems) > 0 {
			t.Errorf("events %v, problems %v", got.Events, got.Problems)
		}
		if _, ok := h.loader.graceLeft(h.now); ok {
			t.Error("there is grace for a file that is gone")
		}
	})
}

// TestGrowingFileIsWaitedFor writes a file in pieces, with breaks that are long together.
func TestGrowingFileIsWaitedFor(t *testing.T) {
	text := svc("a", "10.96.0.1") + "---\n" + svc("b", "10.96.0.2")
	h := newHistory(t, "m.yaml", text)
	for _, end := range []int{0, 10, 30, len(text) - 5} {
		h.write("m.yaml", text[:end])
		if got := h.loadAfter(graceTime - 1); len(got.Events) > 0 || len(got.Problems) > 0 {
			t.Fatalf("of %d bytes: events %v, problems %v", end, got.Events, got.Problems)
		}
	}
	h.write("m.yaml", text)
	if got := h.loadAfter(graceTime - 1); len(got.Events) > 0 {
		t.Errorf("the same content as before: %v", got.Events)
	}
	if got := h.loadAfter(graceTime); len(got.Events) > 0 || len(got.Problems) > 0 {
		t.Errorf("later: events %v, problems %v", got.Events, got.Problems)
	}
}

func TestSourceLooksAgainWhenGraceEnds(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now().Add(-time.Hour))
	f := newFixture(t, "m")
	f.write("m/a.yaml", svc("a", "10.96.0.1"))
	f.start(Options{Clock: clock})
	f.eventually("being in sync", f.sink.isSynced)

	must(t, os.Truncate(filepath.Join(f.path, "a.yaml"), 0))
	f.eventually("noticing the empty file", func() bool {
		clock.Step(defaultDebounce) // the watch waits for quiet
		return f.logged("looks half written", "a.yaml") == 1
	})
	if got := f.sink.services(); len(got) != 1 || len(f.sink.refused()) > 0 {
		t.Errorf("Services %v, refused %v", got, f.sink.refused())
	}
	f.eventually("the loss", func() bool {
		clock.Step(graceTime)
		return len(f.sink.services()) == 0 && len(f.sink.refused()) == 1
	})
	if n := f.logged("Refused a manifest", "a.yaml", "it became empty"); n != 1 {
		t.Errorf("the loss was logged %d times", n)
	}
	f.write("m/a.yaml", svc("a", "10.96.0.1"))
	f.eventually("the way back", func() bool {
		clock.Step(defaultDebounce)
		return len(f.sink.services()) == 1 && len(f.sink.refused()) == 0
	})
}
