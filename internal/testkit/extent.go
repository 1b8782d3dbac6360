package testkit

import (
	"cmp"
	"os"
	"testing"
)

// How much is tested. There are three extents, and this file is all there is to say about
// what they mean; tests ask for nothing else.
//
//   - Short is go test -short, and make quick: what finds most faults in a few minutes.
//     Scenarios run in nftables mode alone, random searches are brief, and no browser, guest,
//     API server or soak is started.
//   - Otherwise, as make test does: everything that must hold before a change lands.
//   - Full is SLUICE_TESTS=full, and make full: no sharing of scenarios between variants, and
//     searches as long as a night allows.

// ExtentVariable names the environment variable that asks for everything, as "full".
const ExtentVariable = "SLUICE_TESTS"

// Short reports whether only what is quick is to be tested.
func Short() bool { return testing.Short() }

// Full reports whether everything is to be tested, however long it takes.
func Full() bool { return !Short() && os.Getenv(ExtentVariable) == "full" }

// Extent returns how much of something to do: the value for a short, an ordinary or a full run.
func Extent[T any](short, ordinary, full T) T {
	switch {
	case Short():
		return short
	case Full():
		return full
	}
	return ordinary
}

// ExtentOr returns what a flag of the test asks for, if it is set, and else Extent.
func ExtentOr[T comparable](asked, short, ordinary, full T) T {
	return cmp.Or(asked, Extent(short, ordinary, full))
}

// NotShort skips a test in a short run, and says why it is not quick.
func NotShort(t testing.TB, why string) {
	t.Helper()
	if Short() {
		t.Skip("not in a short run: " + why)
	}
}

// OnlyFull skips a test unless everything is tested, and says why.
func OnlyFull(t testing.TB, why string) {
	t.Helper()
	if !Full() {
		t.Skipf("only with %s=full: %s", ExtentVariable, why)
	}
}
