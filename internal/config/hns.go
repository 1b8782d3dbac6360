package config

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// servicePath is the path of the field that only Windows has a meaning for, in any mode.
const servicePath = "windowsRunAsService"

// hasServices reports whether a program can be a service of the system as Windows has them.
const hasServices = runtime.GOOS == "windows"

// defaultRootEndpoint is upstream's.
const defaultRootEndpoint = "cbr0"

// readsAlso reports whether a mode reads a section that is not for modes.
func readsAlso(m dataplane.Mode, section string) bool { return section == m.Configuration.AlsoSection }

// windows returns the settings of the Host Networking Service, and has plan forward health checks if they
// ask for that.
func windows(c *Configuration, m dataplane.Mode, s *Settings, n *notes) (out dataplane.Windows) {
	section := &c.Winkernel
	if !readsAlso(m, "winkernel") {
		return out
	}
	out = dataplane.Windows{
		Network: section.NetworkName, DSR: section.EnableDSR,
		RootEndpoint: cmp.Or(section.RootHnsEndpointName, defaultRootEndpoint),
	}
	if section.SourceVip != "" {
		ip, ok := parseAddr(section.SourceVip)
		if !ok {
			n.fail("winkernel.sourceVip", fmt.Sprintf("%q is not an IP address", section.SourceVip),
				"set --source-vip to an address of the node's pod range that no pod has")
		}
		out.SourceVIP = ip
	}
	if section.ForwardHealthCheckVip {
		s.Plan.HealthPort = cmp.Or(s.Serving.Health.Port(), healthPort)
	}
	return out
}

// without reports whether a field for all modes has no effect in one.
func without(m dataplane.Mode, path string) bool {
	return slices.Contains(m.Configuration.Without, path)
}

// localDetector is detectLocal for modes that recognise pods.
func localDetector(c *Configuration, m dataplane.Mode, p *plan.Config, n *notes) {
	if !without(m, "detectLocalMode") {
		detectLocal(c, p, n)
	}
}
