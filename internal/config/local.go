package config

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/plan"
)

// The local modes: how traffic from pods is recognised. Mode "" is
// LocalModeClusterCIDR.
const (
	LocalModeClusterCIDR         v1alpha1.LocalMode = "ClusterCIDR"
	LocalModeNodeCIDR            v1alpha1.LocalMode = "NodeCIDR"
	LocalModeBridgeInterface     v1alpha1.LocalMode = "BridgeInterface"
	LocalModeInterfaceNamePrefix v1alpha1.LocalMode = "InterfaceNamePrefix"
)

// detectLocal fills in how traffic from pods is recognised.
func detectLocal(c *Configuration, p *plan.Config, n *notes) {
	cidrs := clusterCIDRs(c.ClusterCIDR, c.DetectLocalMode == LocalModeClusterCIDR, n)
	switch c.DetectLocalMode {
	case LocalModeClusterCIDR:
		if c.ClusterCIDR == "" {
			n.warn("clusterCIDR", "traffic from pods is not recognised: detect-local-mode is ClusterCIDR, but there is no cluster CIDR",
				"set --cluster-cidr, or another --detect-local-mode")
			return
		}
		p.DetectLocal, p.ClusterCIDRs = plan.DetectClusterCIDR, cidrs
	case LocalModeNodeCIDR:
		p.DetectLocal = plan.DetectNodeCIDR
	case LocalModeBridgeInterface:
		name := c.DetectLocal.BridgeInterface
		if interfaceName("detectLocal.bridgeInterface", "--pod-bridge-interface", name, n) {
			p.DetectLocal, p.BridgeInterface = plan.DetectBridgeInterface, name
		}
	case LocalModeInterfaceNamePrefix:
		prefix := c.DetectLocal.InterfaceNamePrefix
		if interfaceName("detectLocal.interfaceNamePrefix", "--pod-interface-name-prefix", prefix, n) {
			p.DetectLocal, p.InterfaceNamePrefix = plan.DetectInterfaceNamePrefix, prefix
		}
	default:
		n.fail("detectLocalMode", fmt.Sprintf("there is no mode %q", c.DetectLocalMode),
			"set --detect-local-mode to ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	}
}

// ifNameSize is the kernel's IFNAMSIZ: what a name of an interface has room in, with the
// byte that ends it.
const ifNameSize = 16

// interfaceName reports whether an interface can have that name, or a name with
// that prefix. Upstream only checks that it is not empty; the kernel then refuses
// all of its rules.
func interfaceName(field, flag, name string, n *notes) bool {
	wrong := ""
	switch {
	case name == "":
		n.fail(field, "the detect-local-mode needs it, and it is empty", "set "+flag+", or another --detect-local-mode")
		return false
	case len(name) >= ifNameSize:
		wrong = fmt.Sprintf("%q is longer than the %d bytes of an interface's name", name, ifNameSize-1)
	case strings.ContainsFunc(name, notInInterfaceName):
		wrong = fmt.Sprintf("%q holds a character that no interface's name can have", name)
	default:
		return true
	}
	n.warn(field, "traffic from pods is not recognised: "+wrong, "correct "+flag)
	return false
}

// notInInterfaceName reports whether the kernel does not allow a character in the
// name of an interface, or iptables cannot express it.
func notInInterfaceName(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune(`/:"\'`, r)
}
