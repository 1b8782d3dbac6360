package command

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/answer/control"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/output"
)

// mostTopTime is the longest time over which rates are measured: an answer must not take
// longer than the control socket allows.
const mostTopTime = 20 * time.Second

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
			if q.Over <= 0 || q.Over > mostTopTime {
				return failed(fmt.Errorf("--interval: %v is not possible (use up to %v)", q.Over, mostTopTime))
			}
			c := newClient(socket)
			defer c.Close()
			list := &listing.List{}
			if err := c.Get(cmd.Context(), servicesPage, listQuery(q), list); err != nil {
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
	if c.Get(cmd.Context(), servicesPage, nil, list) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range list.Services {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func listQuery(q listing.Query) url.Values {
	return url.Values{
		"namespace": {q.Namespace}, "failing": {strconv.FormatBool(q.Failing)}, "top": {strconv.FormatBool(q.Top)},
		"over": {q.Over.String()}, "most": {strconv.Itoa(q.Most)},
	}
}

func listQueryOf(v url.Values) (q listing.Query, err error) {
	q.Namespace, q.Failing, q.Top = v.Get("namespace"), v.Get("failing") == "true", v.Get("top") == "true"
	if most := v.Get("most"); most != "" {
		if q.Most, err = strconv.Atoi(most); err != nil {
			return q, control.BadRequest(err)
		}
	}
	q.Over = 2 * time.Second
	if over := v.Get("over"); over != "" {
		if q.Over, err = time.ParseDuration(over); err != nil || q.Over > mostTopTime {
			return q, control.BadRequest(fmt.Errorf("%q is not a time to measure", over))
		}
	}
	return q, nil
}
