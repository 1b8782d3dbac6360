package testkit

import (
	"flag"
	"runtime"
	"strconv"
)

// Overlap has so many tests that call t.Parallel run at a time for each processor, for a
// package whose tests mostly wait. TestMain calls it; the flag -parallel overrides it. In a
// guest it does nothing.
func Overlap(tests int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	chosen := InGuest()
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", strconv.Itoa(tests*runtime.GOMAXPROCS(0))) // a number is never wrong
	}
}
