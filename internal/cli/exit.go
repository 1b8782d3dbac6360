package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/printable"
)

// Exit codes of commands that ask a running proxy.
const (
	exitNo     = 1 // the answer is no
	exitFailed = 2 // there is no answer
)

// exit ends the process with a code, and an error unless it is nil.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// failed turns an error into an exit without an answer.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &exit{exitFailed, err}
}

// conclude prints an error and returns the exit code.
func conclude(err error, stderr io.Writer) int {
	var e *exit
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &e):
		fmt.Fprintf(stderr, "Error: %v\n", err)
		return 1
	case e.err != nil: // may contain untrusted text
		fmt.Fprintf(stderr, "Error: %s\n", printable.Escape(err.Error()))
	}
	return e.code
}

// exitFailedIfWrong makes a command exit with exitFailed if its
// command line is wrong.
func exitFailedIfWrong(cmd *cobra.Command) *cobra.Command {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error { return failed(check(cmd, args)) }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return failed(flagError(cmd, err)) })
	return cmd
}

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
