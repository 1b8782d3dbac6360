package proxy

import (
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"

	"sluice/internal/kernel/cgroup"
)

// heapShare is the part of the container's memory that is for the Go runtime, in percent. The
// kernel charges the container for the rules too, and for the pages of the program.
const heapShare = 80

// respectMemoryLimit makes the garbage collector work harder before the container's memory is
// exceeded, unless the environment says when.
func respectMemoryLimit(logger logr.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := cgroup.MemoryLimit("/"); limit > 0 {
		soft := limit / 100 * heapShare
		debug.SetMemoryLimit(soft)
		logger.V(1).Info("Respecting the memory limit of the container", "limit", limit, "heap", soft)
	}
}
