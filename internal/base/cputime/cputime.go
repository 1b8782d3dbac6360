// Package cputime measures what work costs on a machine that does other work, too.
package cputime

import (
	"runtime"
	"time"
)

// Of returns the CPU time that f takes in its thread, which is also that of the kernel on its
// behalf, with what it returns. On other systems than Linux it is the time that f takes.
func Of(f func() error) (cost time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := thread()
	err = f()
	return thread() - start, err
}
