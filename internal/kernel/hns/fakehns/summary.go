package fakehns

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Summary describes endpoints and load balancers without their IDs, a line each and sorted, so that
// what two clients leave can be compared.
func (s State) Summary() string {
	address := map[string]string{}
	var lines []string
	for _, e := range s.Endpoints {
		kind := "local"
		if remote(e) {
			kind = "remote"
		}
		at := strings.Join(addresses(e), ",")
		address[key(text(e, "ID"))] = at
		line := "endpoint " + kind + " " + at
		if p := provider(e); p != "" {
			line += " at " + p
		}
		lines = append(lines, line)
	}
	for _, b := range s.LoadBalancers {
		var to []string
		for _, id := range texts(b["HostComputeEndpoints"]) {
			to = append(to, cmp.Or(address[key(id)], "?"))
		}
		slices.Sort(to)
		for _, m := range documents(b["PortMappings"]) {
			lines = append(lines, fmt.Sprintf("balancer %s protocol %d port %d to %s port %d flags %d mapping %d distribution %d source %s",
				cmp.Or(strings.Join(texts(b["FrontendVIPs"]), ","), "*"), number(m, "Protocol"), number(m, "ExternalPort"),
				strings.Join(to, " "), number(m, "InternalPort"), number(b, "Flags"), number(m, "Flags"), number(m, "DistributionType"), cmp.Or(text(b, "SourceVIP"), "-")))
		}
	}
	slices.Sort(lines)
	return strings.Join(append(lines, ""), "\n")
}
