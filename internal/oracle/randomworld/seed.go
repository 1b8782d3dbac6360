package randomworld

import (
	"flag"
	"time"
)

// SeedFlag adds the flag -seed to a test, by which it can be run again with the
// same results. Without the flag they are others each time.
func SeedFlag() *uint64 {
	return flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random tests")
}
