package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/answer/question"
	"sluice/internal/base/printable"
	"sluice/internal/observe/history"
)

// eventsEvery is the period of --follow.
const eventsEvery = time.Second

type eventsAsker = asker[history.Query, question.EventList]

func newEvents() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [-f] [-n NAMESPACE] [NAMESPACE/NAME]",
		Short: "Show what happened to Services and endpoints on this node",
		Long: `events asks the proxy on this node what happened: Services and endpoints that were
added, changed and removed, how long it took until the kernel knew, clients that were
refused and why, and what the kernel refused. The proxy remembers some thousand events
since it started.

Exit codes: 0 if there is an answer, 2 if there is none.`,
		Example: `  kube-proxy events -f
  kube-proxy events -n default --last 20
  kube-proxy events default/web -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("name at most one Service, not %d", len(args))
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "Keep showing new events, also after a restart of the proxy, until interrupted.")
	return asking(cmd, question.Events, func(ctx context.Context, a *eventsAsker) error {
		if follow {
			return failed(followEvents(ctx, a))
		}
		return a.once(ctx)
	})
}

// followEvents shows events as they happen. If the proxy does not answer it may be
// starting, which is said once.
func followEvents(ctx context.Context, a *eventsAsker) error {
	shown, err := a.ask(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(eventsEvery)
	defer tick.Stop()
	a.query.Last = 0
	away := ""
	for next := shown; ; {
		switch {
		case err == nil:
			shown, away = next, ""
			err = writeEvents(a, shown)
		case err.Error() != away:
			away = err.Error()
			err = writeNote(a, away)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		a.query.After = shown.Last
		if next, err = a.ask(ctx); err == nil && !next.Started.Equal(shown.Started) { // a new process
			a.query.After = 0
			next, err = a.ask(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// writeNote writes a line that is not an event, in text only.
func writeNote(a *eventsAsker, text string) error {
	if !a.format.IsText() {
		return nil
	}
	_, err := fmt.Fprintln(a.out, printable.Escape(text))
	return err
}

// writeEvents writes events one by one: a line of text, a line of JSON, or a document of YAML.
func writeEvents(a *eventsAsker, list *question.EventList) error {
	for i := range list.Events {
		e := &list.Events[i]
		if err := a.format.WriteOne(a.out, e, question.Line(e, "")); err != nil {
			return fmt.Errorf("write an event: %w", err)
		}
	}
	return nil
}
