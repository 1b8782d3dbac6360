package ipvs

import (
	"github.com/go-logr/logr"

	"sluice/internal/kernel/sysctl"
)

// sysctls are those of the network namespace that the mode needs.
var sysctls = []sysctl.Setting{
	// Connections through IPVS are masqueraded and found by conntrack like all others.
	{File: "proc/sys/net/ipv4/vs/conntrack", Value: 1},
	// A connection whose destination was deleted ends, instead of waiting for it.
	{File: "proc/sys/net/ipv4/vs/expire_nodest_conn", Value: 1},
	// A client does not stay at a destination of weight 0 because of persistence, which
	// upstream's virtual services have.
	{File: "proc/sys/net/ipv4/vs/expire_quiescent_template", Value: 1},
	// Replies of pods are forwarded.
	{File: "proc/sys/net/ipv4/ip_forward", Value: 1},
}

// strictARP answers ARP requests for an address only on the interface that has it, and
// asks in the name of the best address.
var strictARP = []sysctl.Setting{
	{File: "proc/sys/net/ipv4/conf/all/arp_ignore", Value: 1},
	{File: "proc/sys/net/ipv4/conf/all/arp_announce", Value: 2},
}

// tune sets the sysctls. A failure is logged, and no reason not to serve: an
// administrator may have set them.
func tune(logger logr.Logger, strict bool) {
	settings := sysctls
	if strict {
		settings = append(settings[:len(settings):len(settings)], strictARP...)
	}
	for _, s := range settings {
		if err := sysctl.Set(sysctl.Options{Logger: logger}, s); err != nil {
			logger.Info("A setting of the kernel that this mode needs stays as it is", "reason", err.Error())
		}
	}
}
