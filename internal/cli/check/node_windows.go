package check

import (
	"cmp"
	"context"
	"errors"
	"os"

	"sluice/internal/kernel/hns"
	"sluice/internal/plan"
)

func lacksIPv6() bool { return false }

// checkNode looks at the Host Networking Service: what there is of it, and the load balancers of other
// programs, which upstream's kube-proxy leaves behind.
func (r *Report) checkNode(_ context.Context, o *Options, _ *plan.Desired) {
	service, err := hns.Service()
	if err != nil {
		r.add(Todo, "HNS", "install the Windows feature Containers", "%v", err)
		return
	}
	client := hns.NewClient(service)
	version, err := client.Version()
	if err != nil {
		r.add(Todo, "HNS", "run it as an administrator of the node, and see that the service hns runs", "%v", err)
		return
	}
	r.add(Fine, "HNS", "", "version %v answers", version)
	if o.Settings.Windows.DSR && !version.DSR() {
		r.add(Todo, "HNS", "leave out --enable-dsr, or use a later release of Windows", "version %v has no direct server return", version)
	}
	r.checkNetwork(client, cmp.Or(o.Settings.Windows.Network, os.Getenv("KUBE_NETWORK")))
	ids, err := client.IDs(hns.LoadBalancers, nil)
	if err != nil {
		r.add(Note, "load balancers", "", "they are not known: %v", err)
		return
	}
	others := 0
	for _, id := range ids {
		if !id.IsOurs() {
			others++
		}
	}
	if others == 0 {
		r.add(Fine, "load balancers", "", "there are none of other programs")
		return
	}
	r.add(Todo, "load balancers", "stop upstream's kube-proxy, and delete what it leaves: Get-HnsPolicyList | Remove-HnsPolicyList",
		"%d are of other programs, such as upstream's kube-proxy: Services whose address and port they have are not served", others)
}

func (r *Report) checkNetwork(client *hns.Client, name string) {
	if name == "" {
		r.add(Todo, "network", "set --network-name, or KUBE_NETWORK in the environment", "it is not known which network of HNS the pods are in")
		return
	}
	network, err := client.NetworkNamed(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.add(Todo, "network", "see Get-HnsNetwork for those that there are; the CNI plugin creates it", "HNS has no network %q", name)
	case err != nil:
		r.add(Note, "network", "", "%v", err)
	default:
		r.add(Fine, "network", "", "%s is there, of type %s", name, network.Type)
	}
}
