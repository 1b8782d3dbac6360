package config

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/plan"
)

// detectLocal fills in how traffic from pods is recognised.
func detectLocal(c *Configuration, p *plan.Config, n *notes) {
	cidrs := clusterCIDRs(c.ClusterCIDR, c.DetectLocalMode == LocalModeClusterCIDR, n)
	switch c.DetectLocalMode {
	case LocalModeClusterCIDR:
		if strings.TrimSpace(c.ClusterCIDR) == "" {
			n.warn("clusterCIDR", "traffic from pods is not told apart from other traffic: detect-local-mode is ClusterCIDR, but there is no cluster CIDR",
				"set --cluster-cidr, or another --detect-local-mode")
			return
		}
		p.DetectLocal, p.ClusterCIDRs = plan.DetectClusterCIDR, cidrs
	case LocalModeNodeCIDR:
		p.DetectLocal = plan.DetectNodeCIDR
	case LocalModeBridgeInterface:
		name := c.DetectLocal.BridgeInterface
		interfaceName("detectLocal.bridgeInterface", "--pod-bridge-interface", name, n)
		p.DetectLocal, p.BridgeInterface = plan.DetectBridgeInterface, name
	case LocalModeInterfaceNamePrefix:
		prefix := c.DetectLocal.InterfaceNamePrefix
		interfaceName("detectLocal.interfaceNamePrefix", "--pod-interface-name-prefix", prefix, n)
		p.DetectLocal, p.InterfaceNamePrefix = plan.DetectInterfaceNamePrefix, prefix
	default:
		n.fail("detectLocalMode", fmt.Sprintf("there is no mode %q", c.DetectLocalMode),
			"set --detect-local-mode to ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	}
}

// interfaceName checks what the kernel would accept as a name or its start.
func interfaceName(field, flag, name string, n *notes) {
	switch {
	case name == "":
		n.fail(field, "the detect-local-mode needs it, and it is empty", "set "+flag+", or another --detect-local-mode")
	case len(name) >= unix.IFNAMSIZ:
		n.fail(field, fmt.Sprintf("%q is longer than the %d bytes of an interface's name", name, unix.IFNAMSIZ-1), "correct "+flag)
	case strings.ContainsAny(name, "/: \t\n"):
		n.fail(field, fmt.Sprintf("%q holds a character that no interface's name can have", name), "correct "+flag)
	}
}
