package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/answer/output"
	"sluice/internal/answer/question"
	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
)

// statusEvery is the period of --watch.
const statusEvery = time.Second

type statusAsker = asker[question.None, status.Report]

func newStatus() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [--watch]",
		Short: "Show the status of the proxy on this node",
		Long: `status asks the proxy on this node what it waits for, how many frontends are in
the kernel, what failed and why, and what it did last.

Exit codes: 0 if the proxy serves, and the kernel refused nothing, 1 if not, 2 if there
is no answer.`,
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Keep showing the status, every second, until interrupted.")
	return asking(cmd, question.Status, func(ctx context.Context, a *statusAsker) error {
		if watch {
			return failed(followStatus(ctx, a))
		}
		return a.once(ctx)
	})
}

// followStatus shows the status repeatedly. If the proxy does not answer it may be
// starting.
func followStatus(ctx context.Context, a *statusAsker) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	before := "\n"
	if output.IsTerminal(a.out) {
		before = "\x1b[H\x1b[2J" // clears the previous one
	}
	before = a.format.Separator(before)
	for {
		if _, err := io.WriteString(a.out, before); err != nil {
			return err
		}
		r, err := a.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			_, err = fmt.Fprintln(a.out, printable.Escape(err.Error()))
		default:
			err = a.write(r)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
