package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/answer/listing"
	"sluice/internal/answer/output"
	"sluice/internal/answer/question"
)

func newServices() *cobra.Command {
	var socket string
	var out output.Format
	var q listing.Query
	cmd := &cobra.Command{
		Use:   "services [-n NAMESPACE] [--failing] [--top]",
		Short: "List the Services of this node, and whether they work",
		Long: `services asks the proxy on this node for its Services: their addresses, how many
endpoints they have, how many of those are on this node, and whether they work.

Exit codes: 0 if there is a list, 1 if the proxy does not serve yet, or --failing is set
and some Services fail, 2 if there is no answer.`,
		Example: `  kube-proxy services -n default
  kube-proxy services --failing
  kube-proxy services --top --limit 10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Over <= 0 || q.Over > question.MaxTopTime {
				return failed(fmt.Errorf("--interval: %v is not possible (use up to %v)", q.Over, question.MaxTopTime))
			}
			c := newClient(socket)
			defer c.Close()
			list := &listing.List{}
			if err := c.Get(cmd.Context(), question.ServicesPage, question.ServicesValues(q), list); err != nil {
				return failed(err)
			}
			if err := out.Write(cmd.OutOrStdout(), list, func(w io.Writer) error { return listing.Write(w, list) }); err != nil {
				return failed(err)
			}
			if q.Failing && len(list.Services) > 0 || !list.Proxy.Word.Ready() {
				return &exit{code: exitNo}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&q.Namespace, "namespace", "n", "", "Only Services in this namespace.")
	flags.BoolVar(&q.Failing, "failing", false, "Only Services that do not work, or only in part.")
	flags.BoolVar(&q.Top, "top", false, "Measure new and refused connections per second, and list the busiest Services first.")
	flags.DurationVar(&q.Over, "interval", 2*time.Second, "How long to measure, with --top.")
	flags.IntVar(&q.Most, "limit", 0, "How many Services to list at most; 0 for all.")
	// The names of earlier builds, for one release.
	flags.DurationVar(&q.Over, "over", 2*time.Second, "How long to measure, with --top.")
	flags.IntVar(&q.Most, "most", 0, "How many Services to list at most; 0 for all.")
	_ = flags.MarkDeprecated("over", "use --interval")
	_ = flags.MarkDeprecated("most", "use --limit")
	out.AddFlags(cmd)
	addSocketFlag(flags, &socket)
	return asking(cmd)
}

// completeServices completes the name of a Service, if a proxy answers.
func completeServices(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	socket, err := cmd.Flags().GetString("control-socket")
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c := newClient(socket)
	defer c.Close()
	list := &listing.List{}
	if c.Get(cmd.Context(), question.ServicesPage, nil, list) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range list.Services {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
