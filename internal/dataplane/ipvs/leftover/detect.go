//go:build linux

package leftover

import (
	"os"
	"slices"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/localroute"
	"sluice/internal/model"
)

// Detect finds the link and the chains of upstream's ipvs mode, or our link.
func Detect(i *dataplane.Inventory) (d dataplane.Detection) {
	if slices.Contains(i.Links, Link) {
		d.Traces = append(d.Traces, "link "+Link)
	}
	if i.HasChain(iptables.IPVSChains.Has) {
		d.Traces = append(d.Traces, i.ChainTraces(iptables.NAT, iptables.ServicesChain)...)
	}
	if len(d.Traces) > 0 {
		text, _ := os.ReadFile(ipvsFile) // which is not there if IPVS is not
		d.Differences = differences(schedulersIn(string(text)))
	}
	return d
}

// upstreamScheduler is the default of upstream's ipvs mode.
const upstreamScheduler = "rr"

// differences returns what changes with another mode, after virtual services with some schedulers.
func differences(schedulers []string) []model.Problem {
	out := []model.Problem{{
		Object: model.Object{Kind: "kube-proxy in place"},
		Reason: "ClusterIPs are no longer addresses of the node: they do not answer to ping. " +
			"Connections through IPVS may last for 15 minutes (--ipvs-drain-timeout)",
	}}
	for _, scheduler := range schedulers {
		if scheduler != upstreamScheduler {
			out = append(out, model.Problem{
				Object: model.Object{Kind: "IPVS scheduler", Name: scheduler},
				Reason: "only ipvs mode uses it",
				Remedy: schedulerRemedy(scheduler),
			})
		}
	}
	return out
}

func schedulerRemedy(scheduler string) string {
	algorithm, found := map[string]model.Algorithm{
		"sh": model.SourceHash, "mh": model.Maglev, "lc": model.LeastConnections, "wlc": model.LeastConnections,
	}[scheduler]
	if !found {
		return "stay by mode: ipvs, or accept that each endpoint is equally likely"
	}
	return "annotate the Services that need it with sluice/algorithm: " + algorithm.String() + " (docs/algorithms.md), or stay by mode: ipvs"
}

// schedulersIn returns the schedulers of virtual services, as /proc/net/ip_vs lists them.
func schedulersIn(text string) (out []string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !slices.Contains([]string{"TCP", "UDP", "SCTP"}, fields[0]) || fields[1] == "LocalAddress:Port" {
			continue
		}
		if !slices.Contains(out, fields[2]) {
			out = append(out, fields[2])
		}
	}
	slices.Sort(out)
	return out
}

// OwnerTimeout marks the virtual services that this proxy made. The kernel keeps the
// persistence timeout of a service that is not persistent, and uses it for nothing.
// Services without it belong to others and are never changed.
const OwnerTimeout = 51_007

// Owned reports whether this proxy made a virtual service.
func Owned(s ipvs.Service) bool {
	return s.Timeout == OwnerTimeout && s.Flags&ipvs.Persistent == 0
}

const ownTable = 51_007

// OpenRoutes opens the routes to virtual services of this proxy, in a network namespace, given as
// an open file descriptor; 0 is the caller's own.
func OpenRoutes(fd int) (*localroute.Table, error) { return localroute.Open(fd, ownTable, 0) }
