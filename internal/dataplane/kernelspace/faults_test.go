package kernelspace

import (
	"math/rand/v2"
	"strings"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
)

// faults fails one call in twenty. Handles are always closed, as by Windows; and nothing that exists is
// said not to.
func faults(rng *rand.Rand, codes []hns.Code) func(fakehns.Call) hns.Code {
	return func(c fakehns.Call) hns.Code {
		if strings.HasPrefix(c.Function, "HcnClose") || rng.IntN(20) > 0 {
			return 0
		}
		code := codes[rng.IntN(len(codes))]
		changes := strings.HasPrefix(c.Function, "HcnCreate") || strings.HasPrefix(c.Function, "HcnModify")
		if hns.IsGone(code) && !changes {
			return hns.InvalidParameter
		}
		return code
	}
}
