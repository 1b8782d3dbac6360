//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// feed gives lines to an outcome and returns the packages that ended.
func feed(t *testing.T, o *outcome, lines string) (ended []*packageOutcome) {
	t.Helper()
	now := time.Unix(0, 0)
	err := readEvents(strings.NewReader(lines), func(e event) {
		now = now.Add(time.Second)
		if p := o.take(e, now); p != nil {
			ended = append(ended, p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ended
}

// What takes hours is not ended by the limit for the others.
func TestGuestsOfAFullRunHaveTheirTime(t *testing.T) {
	unlimited := 0
	for _, s := range full(options{timeout: "1m"})[0].steps {
		booting := slices.ContainsFunc(s.args, func(arg string) bool {
			return arg == "./..." && s.dir == "" || arg == "./test/..." || arg == "./test/vm"
		})
		switch limit := slices.Index(s.args, "-timeout") + 1; {
		case !booting || !s.tests:
		case s.args[limit] == "0":
			unlimited++
		case !slices.Contains(s.args, "-skip="+kernels):
			t.Errorf("step %s boots guests, and ends after %s: %q", s.name, s.args[limit], s.args)
		}
	}
	if unlimited == 0 {
		t.Error("no step has the time for guests")
	}
}

func TestEventsBecomeLines(t *testing.T) {
	for _, tt := range []struct{ name, events, want string }{
		{"passed", `{"Action":"pass","Package":"a","Elapsed":1.5}`, "ok  \ta\t1.500s"},
		{"failed", `{"Action":"fail","Package":"a","Elapsed":0.25}`, "FAIL\ta\t0.250s"},
		{"without tests", `{"Action":"skip","Package":"a","Elapsed":0}`, "?   \ta\t[no test files]"},
		{"cached", `{"Action":"output","Package":"a","Output":"ok  \ta\t(cached)\n"}
{"Action":"pass","Package":"a","Elapsed":0.001}`, "ok  \ta\t(cached)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o outcome
			ended := feed(t, &o, tt.events)
			if len(ended) != 1 || ended[0].line() != tt.want {
				t.Fatalf("%v, want one package with line %q", ended, tt.want)
			}
		})
	}
}

func TestOutputOfPassedTestsIsForgotten(t *testing.T) {
	var o outcome
	ended := feed(t, &o, `{"Action":"run","Package":"a","Test":"TestGood"}
{"Action":"run","Package":"a","Test":"TestBad"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"fine\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"broken\n"}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":1}
{"Action":"fail","Package":"a","Test":"TestBad","Elapsed":1}
{"Action":"fail","Package":"a","Elapsed":2}
go: something else
`)
	if len(ended) != 1 {
		t.Fatalf("%d packages ended", len(ended))
	}
	p := ended[0]
	if got := p.failure(); got != "broken\n" {
		t.Errorf("output %q", got)
	}
	if !slices.Equal(p.failed, []string{"TestBad"}) || p.counts["pass"] != 1 || p.counts["fail"] != 1 {
		t.Errorf("failed %v, counts %v", p.failed, p.counts)
	}
	if got := o.stray.String(); got != "go: something else\n" {
		t.Errorf("other output %q", got)
	}
}

func TestSlowestIsTheOneThatRuns(t *testing.T) {
	var o outcome
	feed(t, &o, `{"Action":"run","Package":"a","Test":"TestAll"}
{"Action":"run","Package":"a","Test":"TestAll/first"}
{"Action":"pause","Package":"a","Test":"TestAll/first"}
{"Action":"run","Package":"a","Test":"TestAll/second"}
{"Action":"cont","Package":"a","Test":"TestAll/first"}
`)
	if test, _ := o.of("a").slowest(); test != "TestAll/second" {
		t.Errorf("slowest is %q: it runs for longer than the one that was paused", test)
	}
}

// shell is a lane with commands of a shell.
func shell(name string, commands ...string) lane {
	l := lane{name: name}
	for _, c := range commands {
		l.steps = append(l.steps, step{name: c, args: []string{"sh", "-c", c}})
	}
	return l
}

func TestFailureIsShownAtTheEnd(t *testing.T) {
	var out strings.Builder
	stop := shell("three", "exit 1", "echo never >&2; exit 1")
	stop.steps[0].needed = true
	skip := shell("four", "echo no network; exit 1")
	skip.steps[0].optional = func(output string) string { return strings.TrimSpace(output) }
	b := newBoard(&out, []lane{shell("one", "echo hidden; true"), shell("two", "echo shown; false", "true"), stop, skip}, false)
	b.run(t.Context())
	if err := b.report(); err != errFailed {
		t.Errorf("error %v", err)
	}
	text := out.String()
	for _, want := range []string{"ok  \tone: echo hidden; true", "FAIL\ttwo: echo shown; false", "ok  \ttwo: true",
		"===== two: echo shown; false: exit status 1\nshown\n", "what comes after exit 1 was not run", "skipped: no network"} {
		if !strings.Contains(text, want) {
			t.Errorf("the output lacks %q:\n%s", want, text)
		}
	}
	for _, other := range []string{"\nhidden\n", "\nnever\n"} {
		if strings.Contains(text, other) {
			t.Errorf("the output has %q:\n%s", other, text)
		}
	}
}

func TestTestsOfAModuleAreRun(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":    "module example\n",
		"a_test.go": "package example\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Log(\"seen\"); t.Fail() }\n\nfunc TestB(*testing.T) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	b := newBoard(&out, []lane{{"only", []step{options{timeout: "1m"}.fresh("tests", dir, "./...")}}}, true)
	b.run(t.Context())
	if err := b.report(); err == nil {
		t.Error("no error")
	}
	for _, want := range []string{"FAIL\texample\t", "a_test.go:5: seen", "1 passed, 1 failed, 0 skipped", "The slowest packages:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}

func TestInterruptedRunFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	b := newBoard(&out, []lane{shell("one", "true")}, false)
	b.run(ctx)
	if err := b.report(); err == nil || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("error %v:\n%s", err, out.String())
	}
}

func TestSomeLanesCanBeChosen(t *testing.T) {
	lanes := []lane{shell("one"), shell("two")}
	if got, err := choose(lanes, []string{"two"}); err != nil || len(got) != 1 || got[0].name != "two" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := choose(lanes, []string{"three"}); err == nil {
		t.Error("no error for a lane that does not exist")
	}
}

// What starts a program that was built, or asks the go command, must not be cached: go test
// does not see what those are made of.
func TestCachedPackagesBuildNothing(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, top := range []string{"cmd", "internal", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil || slices.Contains(uncached, "./"+dir) {
				return err
			}
			for _, sign := range []string{`exec.Command("go"`, `exec.CommandContext(t.Context(), "go"`, `"sluice/test/lab"`} {
				if strings.Contains(string(text), sign) {
					t.Errorf("%s has %s: add its package to uncached", path, sign)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
