package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/answer/control"
	"sluice/internal/answer/output"
	"sluice/internal/answer/question"
	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/observe/history"
)

// eventsEvery is the period of --follow.
const eventsEvery = time.Second

func newEvents() *cobra.Command {
	e := &eventsCommand{}
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
		ValidArgsFunction: completeServices,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("name at most one Service, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				namespace, name, ok := strings.Cut(args[0], "/")
				if !ok || namespace == "" || name == "" {
					return failed(fmt.Errorf("%q is not a Service: use NAMESPACE/NAME", args[0]))
				}
				e.query.Service = model.Name{Namespace: namespace, Name: name}
			}
			e.client, e.out = newClient(e.socket), cmd.OutOrStdout()
			defer e.client.Close()
			return failed(e.run(cmd.Context()))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&e.follow, "follow", "f", false, "Keep showing new events, until interrupted.")
	flags.StringVarP(&e.query.Namespace, "namespace", "n", "", "Only events of Services in this namespace.")
	flags.IntVar(&e.query.Most, "last", 100, "How many past events to show at most; 0 for all.")
	e.format.AddFlags(cmd)
	addSocketFlag(flags, &e.socket)
	return asking(cmd)
}

type eventsCommand struct {
	socket string
	follow bool
	query  history.Query
	format output.Format
	client *control.Client
	out    io.Writer
}

func (e *eventsCommand) run(ctx context.Context) error {
	reply, err := e.ask(ctx)
	if err != nil {
		return err
	}
	if !e.follow {
		return e.format.Write(e.out, reply, func(w io.Writer) error { return e.write(reply) })
	}
	tick := time.NewTicker(eventsEvery)
	defer tick.Stop()
	e.query.Most = 0
	away := ""
	for {
		if err != nil {
			if err.Error() != away { // once; it may be starting
				away = err.Error()
				err = e.note(away)
			} else {
				err = nil
			}
		} else {
			away = ""
			err = e.write(reply)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if away == "" {
			e.query.After = reply.Last
		}
		var next *question.EventsReply
		if next, err = e.ask(ctx); ctx.Err() != nil {
			return nil
		}
		if err == nil {
			if !next.Started.Equal(reply.Started) { // a new process
				e.query.After = 0
				if next, err = e.ask(ctx); err != nil {
					continue
				}
			}
			reply = next
		}
	}
}

func (e *eventsCommand) ask(ctx context.Context) (*question.EventsReply, error) {
	reply := &question.EventsReply{}
	return reply, e.client.Get(ctx, question.EventsPage, question.EventsValues(e.query), reply)
}

// note writes a line that is not an event, in text only.
func (e *eventsCommand) note(text string) error {
	if !e.format.IsText() {
		return nil
	}
	_, err := fmt.Fprintln(e.out, printable.Escape(text))
	return err
}

// write writes events one by one: a line of text, a line of JSON, or a document of YAML.
func (e *eventsCommand) write(reply *question.EventsReply) error {
	for i := range reply.Events {
		if err := e.writeOne(&reply.Events[i]); err != nil {
			return fmt.Errorf("write an event: %w", err)
		}
	}
	return nil
}

func (e *eventsCommand) writeOne(event *history.Event) error {
	subject := event.Service
	if subject == "" {
		subject = "this node"
	}
	line := fmt.Sprintf("%s  %-24s %s\n", event.At.Local().Format("2006-01-02 15:04:05.000"), printable.Escape(subject), printable.Escape(event.Text()))
	return e.format.WriteOne(e.out, event, line)
}
