package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

// Configuration is upstream's configuration of a kube-proxy.
type Configuration = v1alpha1.KubeProxyConfiguration

// ModeNFTables is the proxy mode there is. Mode "" means it too.
const ModeNFTables v1alpha1.ProxyMode = "nftables"

// The local modes: how traffic from pods is recognised. Mode "" is
// LocalModeClusterCIDR.
const (
	LocalModeClusterCIDR         v1alpha1.LocalMode = "ClusterCIDR"
	LocalModeNodeCIDR            v1alpha1.LocalMode = "NodeCIDR"
	LocalModeBridgeInterface     v1alpha1.LocalMode = "BridgeInterface"
	LocalModeInterfaceNamePrefix v1alpha1.LocalMode = "InterfaceNamePrefix"
)

const (
	defaultMasqueradeBit = 14
	defaultSyncPeriod    = 30 * time.Second
)

// New returns the configuration of somebody who said nothing.
//
// The values are upstream's, but for nftables.minSyncPeriod: upstream waits a
// second between two changes because each of them is expensive there. Here a
// change costs what it changes, so nothing is gained by waiting.
func New() *Configuration {
	c := &Configuration{
		DetectLocalMode: LocalModeClusterCIDR,
		IPTables: v1alpha1.KubeProxyIPTablesConfiguration{
			MasqueradeBit:      ptr.To[int32](defaultMasqueradeBit),
			LocalhostNodePorts: ptr.To(true),
			SyncPeriod:         metav1.Duration{Duration: defaultSyncPeriod},
			MinSyncPeriod:      metav1.Duration{Duration: time.Second},
		},
		NFTables: v1alpha1.KubeProxyNFTablesConfiguration{
			MasqueradeBit: ptr.To[int32](defaultMasqueradeBit),
			SyncPeriod:    metav1.Duration{Duration: defaultSyncPeriod},
		},
	}
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
	return c
}
