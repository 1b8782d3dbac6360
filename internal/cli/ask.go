package cli

import (
	"context"
	"fmt"
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

func newServices() *cobra.Command {
	return asking(&cobra.Command{
		Use:   "services [-n NAMESPACE] [--failing] [--top]",
		Short: "List the Services of this node, and whether they work",
		Long: `services asks the proxy on this node for its Services: their addresses, how many
endpoints they have, how many of those are on this node, and whether they work.

Exit codes: 0 if there is a list, 1 if the proxy does not serve yet, or --failing is set
and some Services fail, 2 if there is no answer.`,
		Example: `  kube-proxy services -n default
  kube-proxy services --failing
  kube-proxy services --top --limit 10`,
	}, question.Services, nil)
}

func newExplain() *cobra.Command {
	return asking(&cobra.Command{
		Use:   "explain [--from IP|pod|node|outside] SERVICE[:PORT] | IP[:PORT] | URL | PORT",
		Short: "Explain what happens to a packet on this node, and why",
		Long: `explain asks the proxy that runs on this node what happens to the first packet of a
connection: which frontend it meets, which endpoints it may reach and which not,
under which source address, what the kernel holds for it, and what to do if it
does not get through.

A Service is named as namespace/name, as svc/name in namespace default, by its DNS name,
or by its name alone if only one namespace has it. Without a port all ports are
explained. A port may be followed by /tcp, /udp or /sctp. A number alone is a node port.

With --try one connection is opened, from this node or from a pod that is named by its
address or network namespace, and what happens is shown beside what should.

Exit codes: 0 if the packet reaches an endpoint, 1 if it is refused, dropped or not for
a Service, 2 if there is no answer. With --try, 0 if the connection was answered.`,
		Example: `  kube-proxy explain default/web
  kube-proxy explain --from 198.51.100.10 203.0.113.5:443
  kube-proxy explain --from node kube-system/kube-dns:53/udp
  kube-proxy explain --try --from 10.244.1.5 default/web
  kube-proxy explain https://web.default.svc.cluster.local/login
  kube-proxy explain 10.96.0.1
  kube-proxy explain 30080`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one thing to explain, such as default/web or 10.96.0.1:80, not %d", len(args))
			}
			return nil
		},
	}, question.Explain, nil)
}
