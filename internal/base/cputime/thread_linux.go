// Package cputime measures what work costs on a machine that does other work, too.
package cputime

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Of returns the CPU time that f takes in its thread, which is also that of the kernel on its
// behalf, with what it returns.
func Of(f func() error) (cost time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := thread()
	err = f()
	return thread() - start, err
}

// thread returns the CPU time of the calling thread so far.
func thread() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0 // all supported kernels have this clock
	}
	return time.Duration(ts.Nano())
}
