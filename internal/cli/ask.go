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
		a.client, a.out = newClient(cmd.Flags()), cmd.OutOrStdout()
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
	addSocketFlag(flags, new(string))
	if flags.Lookup(flagServiceProxyName) == nil {
		flags.String(flagServiceProxyName, "", "Ask the proxy that was started with this --service-proxy-name.")
	}
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
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c := newClient(cmd.Flags())
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

const (
	flagControlSocket    = "control-socket"
	flagServiceProxyName = "service-proxy-name" // of package config, for the proxy
)

func addSocketFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, flagControlSocket, control.DefaultSocket,
		"Socket on which the proxy answers the commands "+question.Names()+", for root only. The proxy has none if it is empty.")
}

// newClient returns a client of the proxy behind the socket of the flags. If this user sees none
// at the default path, but runs a proxy in a sandbox, it is that one.
func newClient(flags *pflag.FlagSet) *control.Client {
	path, _ := flags.GetString(flagControlSocket) // all commands have both
	name, _ := flags.GetString(flagServiceProxyName)
	if path != control.DefaultSocket {
		return control.NewClient(path)
	}
	path = control.Named(path, name)
	if own := control.Named(control.OwnSocket(), name); control.IsOwn(own) {
		if _, err := os.Lstat(path); err != nil {
			path = own
		}
	}
	return control.NewClient(path)
}
