package kernelspace

import (
	"context"
	"errors"
	"os"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/hns"
	"sluice/internal/plan"
)

// unsupported is the error of a system without HNS.
type unsupported struct{ error }

func (unsupported) Is(target error) bool { return target == dataplane.ErrUnsupported }

// Mode is mode kernelspace.
var Mode = dataplane.Mode{
	Name: "kernelspace",
	Open: func(_ context.Context, o dataplane.Options) (dataplane.Dataplane, error) {
		service, err := hns.Service()
		if err != nil {
			return nil, unsupported{err}
		}
		settings := o.Windows
		if settings.Network == "" {
			settings.Network = os.Getenv("KUBE_NETWORK")
		}
		if settings.Network == "" {
			return nil, errors.New("it is not known which network of HNS the pods are in (set --network-name, or KUBE_NETWORK in the environment)")
		}
		return New(Options{Logger: o.Logger, Windows: settings, Service: service, InterfaceOf: interfaceOf}), nil
	},
	Missing: func() error { _, err := hns.Service(); return err },
	Remove: func(ctx context.Context, o dataplane.RemoveOptions) error {
		if o.Running != nil {
			return nil // it removes itself what it does not need
		}
		service, err := hns.Service()
		if err != nil {
			return err
		}
		return remove(ctx, hns.NewClient(service))
	},
	Adjust: func(c *plan.Config) {
		c.Limits = plan.Limits{Mechanism: "the Host Networking Service of Windows", System: "HNS",
			NoSCTP: true, NoSourceRanges: true, NoAffinityTimeout: true, NoWeights: true, NoRefusal: true, OneRoute: true, OwnSource: true, OneTargetPort: true}
		c.FrontendsOnly, c.PreserveDestination, c.PrimaryIPs = true, true, true
		c.NodePortAddresses = plan.NodePortAddresses{All: true}
		c.DropInvalid = false
	},
	Configuration: dataplane.Configuration{
		Section:           "iptables", // as upstream
		MasqueradeSection: "iptables",
		AlsoSection:       "winkernel",
		Without: []string{
			"iptables.masqueradeBit", "iptables.masqueradeAll", "iptables.localhostNodePorts", "nodePortAddresses",
			"detectLocalMode", "detectLocal.bridgeInterface", "detectLocal.interfaceNamePrefix", "clusterCIDR",
			"oomScoreAdj", "conntrack.maxPerCore", "conntrack.min", "conntrack.tcpEstablishedTimeout", "conntrack.tcpCloseWaitTimeout",
			"conntrack.tcpBeLiberal", "conntrack.udpTimeout", "conntrack.udpStreamTimeout",
		},
	},
	Counters: metrics,
}
