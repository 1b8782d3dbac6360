package config

import (
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// The proxy modes of upstream.
const (
	ModeNFTables v1alpha1.ProxyMode = "nftables"
	ModeIPTables v1alpha1.ProxyMode = "iptables"
	ModeIPVS     v1alpha1.ProxyMode = "ipvs"
)

// modes are the proxy modes that can be run.
var modes = []v1alpha1.ProxyMode{ModeNFTables, ModeIPTables}

func modeNames() string {
	names := make([]string, len(modes))
	for i, mode := range modes {
		names[i] = string(mode)
	}
	return strings.Join(names, ", ")
}

// The local modes: how traffic from pods is recognised. Mode "" is
// LocalModeClusterCIDR.
const (
	LocalModeClusterCIDR         v1alpha1.LocalMode = "ClusterCIDR"
	LocalModeNodeCIDR            v1alpha1.LocalMode = "NodeCIDR"
	LocalModeBridgeInterface     v1alpha1.LocalMode = "BridgeInterface"
	LocalModeInterfaceNamePrefix v1alpha1.LocalMode = "InterfaceNamePrefix"
)
