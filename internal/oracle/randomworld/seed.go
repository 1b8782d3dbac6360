package randomworld

import (
	"flag"
	"time"
)

// SeedFlag adds the flag -seed to a test, to reproduce its results. By default
// the seed is random.
func SeedFlag() *uint64 {
	return flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random tests")
}
