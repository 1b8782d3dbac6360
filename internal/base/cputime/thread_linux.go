package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// thread returns the CPU time of the calling thread so far.
func thread() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0 // all supported kernels have this clock
	}
	return time.Duration(ts.Nano())
}
