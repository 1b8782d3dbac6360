package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// How long the process takes to end after a signal, at most.
const (
	endStarting   = time.Second      // there is nothing to finish
	endWriting    = 10 * time.Second // what is being written has time to be complete
	endForwarding = 3 * time.Second  // beside what connections through the process have
)

// end bounds how long the process takes to end: a file system, the kernel or a log that
// nobody reads may hang. The zero value is that of a command that writes something.
type end struct{ within atomic.Int64 }

// starting notes that the process only reads so far.
func (e *end) starting() { e.within.Store(int64(endStarting)) }

// serving notes that the process serves, and that connections that go through it have some
// grace.
func (e *end) serving(grace time.Duration) {
	e.within.Store(int64(max(endWriting, grace+endForwarding)))
}

func (e *end) limit() time.Duration {
	return cmp.Or(time.Duration(e.within.Load()), endWriting)
}

// await returns the exit code that run returns, or 1 if it takes too long after ctx ended.
func (e *end) await(ctx context.Context, stderr io.Writer, run func() int) int {
	code := make(chan int, 1)
	go func() { code <- run() }()
	select {
	case c := <-code:
		return c
	case <-ctx.Done():
	}
	limit := e.limit()
	select {
	case c := <-code:
		return c
	case <-time.After(limit):
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		fmt.Fprintf(stderr, "Error: told to end %v ago, but a file, the log or the kernel does not answer: ending without it\n", limit)
	}()
	select {
	case <-said:
	case <-time.After(endStarting):
	}
	return 1
}
