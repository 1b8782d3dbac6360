package cli

import (
	"errors"
	"fmt"
	"io"

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
