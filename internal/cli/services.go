package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/answer/question"
)

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
