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
// of threads that want each processor, and with the time that a virtual machine's processors are
// away, because its host has others to serve.
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
	at    time.Time
	load  float64
	theft theft
}

// load returns that of the machine.
func load() float64 {
	lastLoad.Lock()
	defer lastLoad.Unlock()
	if now := time.Now(); now.Sub(lastLoad.at) >= loadAge {
		lastLoad.theft.look()
		lastLoad.at, lastLoad.load = now, max(readLoad(), float64(runtime.NumCPU()))*lastLoad.theft.slowdown
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

// theft is what a host takes from the processors of its guest.
type theft struct {
	used, stolen uint64 // at the last look, in ticks of a hundredth of a second
	slowdown     float64
}

// theftTicks are enough to say what share of them was stolen.
const theftTicks = 20

// look updates by how much the host slows this machine down. What was seen before fades within seconds, because
// processors are away in bursts.
func (t *theft) look() {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.slowdown = 1
		return
	}
	t.take(string(text))
}

func (t *theft) take(stat string) {
	var user, nice, system, idle, iowait, irq, softirq, stolen uint64
	if _, err := fmt.Sscanf(stat, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &stolen); err != nil {
		t.slowdown = 1
		return
	}
	used := user + nice + system + irq + softirq
	first := t.slowdown == 0
	got, lost := used-t.used, stolen-t.stolen
	if got+lost < theftTicks && !first {
		return
	}
	t.used, t.stolen = used, stolen
	if first { // since the machine started, which says nothing
		t.slowdown = 1
		return
	}
	t.slowdown = max(float64(got+lost)/float64(max(got, 1)), t.slowdown*15/16, 1)
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
