package proxy

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/kernel/cgroup"
)

const (
	// heapShare is the part of the container's memory that is for the Go runtime, in percent. The
	// kernel charges the container for the rules too, and for the pages of the program.
	heapShare = 80
	// limitPeriod is how often the limit of the container is read: it can be changed while it runs.
	limitPeriod = 10 * time.Second
	// noMemoryLimit is what the runtime calls a limit if there is none.
	noMemoryLimit = math.MaxInt64
	// calmGarbage is how much garbage there may be after the start, in percent of what lives. Nearly all of
	// that lives as long as its object, so that a smaller heap costs a change no time that can be measured.
	calmGarbage = 40
	// settlePeriod is how long observers have for the first commit before memory is given back.
	settlePeriod = time.Second
)

// respectMemoryLimit makes the garbage collector work harder before the container's memory is
// exceeded, unless the environment says when. It returns the limit, 0 for none.
func respectMemoryLimit(logger logr.Logger, before int64) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit := cgroup.MemoryLimit("/")
	switch {
	case limit == before:
	case limit > 0:
		soft := limit / 100 * heapShare
		debug.SetMemoryLimit(soft)
		logger.V(1).Info("Respecting the memory limit of the container", "limit", limit, "heap", soft)
	default:
		debug.SetMemoryLimit(noMemoryLimit)
		logger.V(1).Info("The container has no memory limit any more")
	}
	return limit
}

// giveBackMemory returns what the start needed to the system. It leaves a lot of garbage, and the runtime
// would keep the memory for a heap that never gets that large again.
func giveBackMemory(logger logr.Logger) {
	debug.FreeOSMemory()
	if err := unmapProgram(); err != nil {
		logger.V(1).Info("The pages of the program stay mapped", "reason", err.Error())
	}
}

// followMemory gives back memory after the start, and follows the limit of the container.
func (p *proxy) followMemory(ctx context.Context, limit int64) {
	select {
	case <-ctx.Done():
		return
	case <-p.programmed:
	}
	ticker := p.clock.NewTicker(limitPeriod)
	defer ticker.Stop()
	settled := p.clock.NewTimer(settlePeriod)
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-settled.C():
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(calmGarbage)
			}
			giveBackMemory(p.logger)
		case <-ticker.C():
			limit = respectMemoryLimit(p.logger, limit)
		}
	}
}

// withoutObjects is the memory that the runtime takes for a proxy without any objects.
const withoutObjects = 24 << 20

// roomForObjects returns how much memory there is for what objects mean, 0 if there is no limit.
func roomForObjects() int64 {
	soft := debug.SetMemoryLimit(-1)
	if soft == noMemoryLimit {
		return 0
	}
	return max(soft-withoutObjects, soft/2)
}
