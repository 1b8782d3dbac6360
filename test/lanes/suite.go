//go:build linux

package main

import (
	"slices"
	"strings"
	"time"

	"sluice/internal/testkit"
)

// options configure suites.
type options struct {
	testArgs string
	timeout  string
	fuzz     time.Duration
}

// suite is what can be run at once.
type suite struct {
	lanes       func(options) []lane
	startsProxy bool
}

var suites = map[string]suite{
	"lint":  {lanes: lintOnly},
	"quick": {quick, true},
	"test":  {test, true},
	"full":  {full, true},
	"fuzz":  {lanes: fuzz},
}

// Tests build binaries and start them, and ask the go command about the source. go test does
// not know of that, and would repeat results that are out of date: these packages are never
// cached. The others are, which is most of a run after a small change.
var uncached = []string{"./internal/architecture", "./internal/base/release"}

// productPatterns are packages whose tests start nothing that was built, but for uncached.
var productPatterns = []string{"./cmd/...", "./internal/...", "./deploy/..."}

const (
	releaseDir = "release"
	clusterDir = "test/cluster"
)

// goTest is a step that tests packages, with the arguments that all have in common. Another step vets
// them: go test would look through the libraries once more for its own choice of checks.
func (o options) goTest(name, dir string, args ...string) step {
	return step{name: name, dir: dir, tests: true,
		args: slices.Concat([]string{"-vet=off", "-timeout", o.timeout}, strings.Fields(o.testArgs), args)}
}

// fresh is a step that tests packages whatever the cache says.
func (o options) fresh(name, dir string, args ...string) step {
	return o.goTest(name, dir, slices.Concat([]string{"-count=1"}, args)...)
}

// product are the steps that test what starts nothing that was built.
func (o options) product(args ...string) []step {
	return []step{
		o.goTest("packages", "", slices.Concat(args, productPatterns)...),
		o.fresh("source", "", slices.Concat(args, uncached)...),
	}
}

// lint are the steps that check the source of a module.
func lint(dir string) []step {
	return []step{vet(dir), staticcheck(dir)}
}

// vet is the step that checks the source of a module as far as go vet does.
func vet(dir string) step {
	return step{name: of("vet", dir), dir: dir, args: []string{"go", "vet", "./..."}}
}

// vetForWindows checks the source of this module as it is on Windows. It comes when tests have built
// the program for it.
var vetForWindows = step{name: "vet for windows", args: []string{"go", "vet", "./..."}, env: []string{"GOOS=windows", "GOARCH=amd64"}}

func staticcheck(dir string) step {
	return step{name: of("staticcheck", dir), dir: dir, args: []string{"go", "tool", "staticcheck", "./..."}}
}

// of names what is done in a module.
func of(what, dir string) string { return strings.TrimSpace(what + " " + dir) }

// format checks the format of all modules.
var format = step{name: "gofmt", args: []string{"sh", "-c",
	`out=$(gofmt -l cmd deploy internal release test); [ -z "$out" ] || { echo "gofmt would change:"; echo "$out"; exit 1; }`}}

func lintOnly(options) []lane {
	return []lane{{"lint", slices.Concat([]step{format}, lint(""), []step{vetForWindows}, lint(releaseDir), lint(clusterDir))}}
}

func quick(o options) []lane {
	return []lane{
		{"lint", append([]step{format}, lint("")...)},
		{"unit", o.product("-short")},
		{"lab", []step{o.fresh("lab", "", "-short", "./test/...")}},
	}
}

// staticcheck reads all libraries of a module the first time. It is for the program here; make lint and
// the night have it for the modules that release and compare it, too.
func test(o options) []lane {
	return []lane{
		{"unit", slices.Concat([]step{format}, lint(""), o.product(),
			[]step{vet(releaseDir), o.fresh("release", releaseDir, "./..."), vetForWindows})},
		{"lab", []step{o.fresh("lab", "", "-p=3", "./test/vm", "./test/lab", "./test/...")}}, // what takes longest begins
		{"cluster", []step{prepare(nil), vet(clusterDir), o.fresh("cluster", clusterDir, "./...")}},
	}
}

// prepare builds the API server that tests run against.
func prepare(env []string) step {
	return step{name: "build an API server", dir: clusterDir, args: []string{"go", "run", "./prepare"}, env: env, needed: true}
}

// kernels is the test that runs everything on other kernels, for hours, and guests are all tests of this
// module that boot one.
//
// Races are looked for in all tests but those: a guest emulates its processor, and has no C library, which
// the detector needs. It does not look into programs that tests build and start, which are those that
// users get: what they do is also tested in packages. For the same reason the modules release and
// test/cluster are left out.
const (
	kernels = "^TestKernels$"
	guests  = "^(TestKernels|TestFailuresInGuestsAreSeen)$"
)

// full has one lane: what it measures and searches should not disturb each other, and it has
// the night.
func full(o options) []lane {
	env := func(s step, variables ...string) step {
		s.env = append(slices.Clone(s.env), variables...)
		return s
	}
	everything := testkit.ExtentVariable + "=full"
	var steps []step
	for _, l := range test(o) {
		for _, s := range l.steps {
			if l.name == "lab" {
				s.args = slices.Insert(slices.Clone(s.args), 0, "-skip="+kernels) // a step of its own has them
			}
			steps = append(steps, env(s, everything))
		}
	}
	endless := o // what takes hours; each of its guests, and each wait of a test, has a limit of its own
	endless.timeout = "0"
	const older = "SLUICE_KUBERNETES=1.31"
	steps = append(steps,
		staticcheck(releaseDir),
		staticcheck(clusterDir),
		env(prepare(nil), older),
		env(o.fresh("API server 1.31", clusterDir, "."), older),
		env(endless.fresh("kernels", "", "-run="+kernels, "./test/vm"), everything),
		env(endless.fresh("race", "", "-race", "-skip="+guests, "./..."), "CGO_ENABLED=1"),
		step{name: "outcomes", args: []string{"make", "outcomes"}},
		step{name: "soak", args: []string{"make", "soak"}},
		step{name: "systems", args: []string{"make", "systems"}},
		vulnerabilities,
	)
	return []lane{{"full", append(steps, fuzz(o)[0].steps...)}}
}

// vulnerabilities are those known of the libraries, where the list of them can be had.
var vulnerabilities = step{name: "govulncheck", args: []string{"go", "run", "golang.org/x/vuln/cmd/govulncheck@v1.1.4", "./..."},
	optional: func(output string) string {
		if strings.Contains(output, "fetching vulnerabilities") {
			return "its database cannot be reached"
		}
		return ""
	}}

// fuzz tries each fuzz target for a while.
func fuzz(o options) []lane {
	const script = `
for package in $(go list ./cmd/... ./internal/... ./deploy/... ./test/...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz'); do
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$0" "$package" || exit
	done
done`
	return []lane{{"fuzz", []step{{name: "fuzz", args: []string{"sh", "-c", script, o.fuzz.String()}}}}}
}
