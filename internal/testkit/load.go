package testkit

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

// maxSlowdown bounds how far timeouts grow on a busy machine, so that a test that hangs ends.
const maxSlowdown = 12

// Scaled returns a timeout for a machine as busy as this one is now: it grows with the number
// of threads that want each processor.
func Scaled(timeout time.Duration) time.Duration {
	return time.Duration(float64(timeout) * slowdown(load()))
}

// slowdown is how many times longer something takes under a load.
func slowdown(load float64) float64 {
	return min(max(load/float64(runtime.NumCPU()), 1), maxSlowdown)
}

// loadAge is for how long the load is taken to be the same: some tests ask for every packet.
const loadAge = 200 * time.Millisecond

var lastLoad struct {
	sync.Mutex
	at   time.Time
	load float64
}

// load returns that of the machine.
func load() float64 {
	lastLoad.Lock()
	defer lastLoad.Unlock()
	if now := time.Now(); now.Sub(lastLoad.at) >= loadAge {
		lastLoad.at, lastLoad.load = now, readLoad()
	}
	return lastLoad.load
}

// readLoad returns how many threads want to run: now, or in the last minute if that was more.
// Where the kernel does not tell, that is none.
func readLoad() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var minute, other float64
	var now int
	if _, err := fmt.Sscanf(string(text), "%f %f %f %d", &minute, &other, &other, &now); err != nil {
		return 0
	}
	return max(minute, float64(now))
}

// Deadline is when a timeout that begins now ends, Scaled.
func Deadline(timeout time.Duration) time.Time { return time.Now().Add(Scaled(timeout)) }

// WithTimeout is context.WithTimeout with a timeout that is Scaled when it is about to end,
// so that a load that comes later counts as well.
func WithTimeout(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	start := time.Now()
	go func() {
		for {
			left := Scaled(timeout) - time.Since(start)
			if left <= 0 {
				cancel(fmt.Errorf("%w: waited for %v", context.DeadlineExceeded, time.Since(start).Round(time.Second)))
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(left):
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
