package cli

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/answer/control"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/output"
	"sluice/internal/answer/question"
)

// asker asks a running proxy a question, and writes the reply.
type asker[Query, Reply any] struct {
	*question.Question[Query, Reply]
	query  Query
	socket string
	format output.Format
	client *control.Client
	out    io.Writer
}

// asking completes a command that asks a running proxy: with the flags of the question
// after its own. It is run by a function, nil to ask once.
func asking[Query, Reply any](
	cmd *cobra.Command, q *question.Question[Query, Reply], run func(context.Context, *asker[Query, Reply]) error,
) *cobra.Command {
	a := &asker[Query, Reply]{Question: q}
	if run == nil {
		run = func(ctx context.Context, a *asker[Query, Reply]) error { return a.once(ctx) }
	}
	fields := q.Fields(&a.query)
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	if q.Argument != "" {
		cmd.ValidArgsFunction = completeServices
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			if err := fields.Set(q.Argument, arg); err != nil {
				return failed(err)
			}
		}
		a.client, a.out = newClient(a.socket), cmd.OutOrStdout()
		defer a.client.Close()
		return run(cmd.Context(), a)
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	fields.VisitAll(func(f *pflag.Flag) {
		if f.Name != q.Argument {
			flags.AddFlag(f)
		}
	})
	a.format.AddFlags(cmd)
	addSocketFlag(flags, &a.socket)
	return exitFailedIfWrong(cmd)
}

func (a *asker[Query, Reply]) once(ctx context.Context) error {
	reply, err := a.ask(ctx)
	if err != nil {
		return failed(err)
	}
	return a.finish(reply)
}

func (a *asker[Query, Reply]) ask(ctx context.Context) (*Reply, error) {
	return a.Ask(ctx, a.client, &a.query)
}

// finish writes a reply and returns the exit code that it means.
func (a *asker[Query, Reply]) finish(reply *Reply) error {
	if err := a.write(reply); err != nil {
		return failed(err)
	}
	if a.IsNo != nil && a.IsNo(&a.query, reply) {
		return &exit{code: exitNo}
	}
	return nil
}

func (a *asker[Query, Reply]) write(reply *Reply) error {
	return a.format.Write(a.out, reply, func(w io.Writer) error { return a.Write(w, reply) })
}

// completeServices completes the name of a Service, if a proxy answers.
func completeServices(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	socket, err := cmd.Flags().GetString("control-socket")
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c := newClient(socket)
	defer c.Close()
	list, err := question.Services.Ask(cmd.Context(), c, &listing.Query{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, s := range list.Services {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func addSocketFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "control-socket", control.DefaultSocket,
		"Socket on which the proxy answers the commands "+question.Names()+", for root only. The proxy has none if it is empty.")
}

// newClient returns a client of the proxy behind a socket. If this user sees none at
// the default path, but runs a proxy in a sandbox, it is that one.
func newClient(path string) *control.Client {
	if own := control.OwnSocket(); path == control.DefaultSocket && control.IsOwn(own) {
		if _, err := os.Lstat(path); err != nil {
			path = own
		}
	}
	return control.NewClient(path)
}
