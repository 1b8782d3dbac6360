package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/answer/question"
)

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
