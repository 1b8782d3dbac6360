package config

import (
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"

	"sluice/internal/dataplane"
	"sluice/internal/mode"
)

// Configuration is upstream's configuration of kube-proxy.
type Configuration = v1alpha1.KubeProxyConfiguration

const (
	kind = "KubeProxyConfiguration"

	defaultMasqueradeBit         = 14
	defaultSyncPeriod            = 30 * time.Second
	defaultIPTablesMinSyncPeriod = time.Second

	healthPort  = 10256
	metricsPort = 10249
)

type servers struct{ health, metrics int32 }

var usualPorts = servers{healthPort, metricsPort}

// New returns the default configuration.
//
// The values are upstream's, except for nftables.minSyncPeriod: upstream waits a
// second between two changes because each one is expensive there. Here the cost is
// proportional to the change, so waiting gains nothing.
func New() *Configuration {
	c := &Configuration{}
	setDefaults(c, usualPorts)
	return c
}

// setDefaults fills in unset fields.
func setDefaults(c *Configuration, ports servers) {
	c.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	defaultPointers(c)
	defaultAddresses(c, ports)
	orElse(&c.ConfigSyncPeriod.Duration, 15*time.Minute)
	orElse(&c.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	orElse(&c.ClientConnection.QPS, 5)
	orElse(&c.ClientConnection.Burst, 10)
	orElse(&c.IPTables.SyncPeriod.Duration, defaultSyncPeriod)
	orElse(&c.IPTables.MinSyncPeriod.Duration, defaultIPTablesMinSyncPeriod)
	orElse(&c.IPVS.SyncPeriod.Duration, defaultSyncPeriod)
	orElse(&c.NFTables.SyncPeriod.Duration, defaultSyncPeriod)
	if c.FeatureGates == nil {
		c.FeatureGates = map[string]bool{}
	}
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

// defaultPointers fills in the fields that distinguish unset from zero.
func defaultPointers(c *Configuration) {
	orElse(&c.IPTables.MasqueradeBit, ptr.To[int32](defaultMasqueradeBit))
	orElse(&c.IPTables.LocalhostNodePorts, ptr.To(true))
	orElse(&c.NFTables.MasqueradeBit, ptr.To[int32](defaultMasqueradeBit))
	orElse(&c.OOMScoreAdj, ptr.To[int32](-999))
	orElse(&c.Conntrack.MaxPerCore, ptr.To[int32](32<<10))
	orElse(&c.Conntrack.Min, ptr.To[int32](128<<10))
	orElse(&c.Conntrack.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	orElse(&c.Conntrack.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
}

// defaultAddresses fills in the listen addresses, in the family of bindAddress.
func defaultAddresses(c *Configuration, ports servers) {
	orElse(&c.BindAddress, "0.0.0.0")
	everywhere, here := "0.0.0.0", "127.0.0.1"
	if addr, ok := parseAddr(c.BindAddress); ok && addr.Is6() {
		everywhere, here = "::", "::1"
	}
	orElse(&c.HealthzBindAddress, everywhere)
	orElse(&c.MetricsBindAddress, here)
	c.HealthzBindAddress = withPort(c.HealthzBindAddress, ports.health)
	c.MetricsBindAddress = withPort(c.MetricsBindAddress, ports.metrics)
}

func withPort(address string, port int32) string {
	if _, ok := parseAddr(address); !ok {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// complete replaces empty values by what they mean. An empty mode means the given
// one.
func complete(c *Configuration, empty dataplane.Mode) {
	if c.Mode == "" {
		c.Mode = v1alpha1.ProxyMode(empty.Name)
		inherit(c, empty)
	}
	orElse(&c.DetectLocalMode, LocalModeClusterCIDR)
	if m, _ := mode.Find(string(c.Mode)); m.Configuration.PrimaryNodePorts && len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{addressesPrimary}
	}
}

// inherit copies fields that are set only in the section that upstream reads if no
// mode is set, because the administrator meant them. Defaults of that section are
// not copied.
func inherit(c *Configuration, m dataplane.Mode) {
	from, to := m.Configuration.InheritSection, m.Configuration.Section
	if from == "" {
		return
	}
	defaults := New()
	isDefault := func(path string) bool { return text(at(c, path)) == text(at(defaults, path)) }
	for _, field := range []string{".masqueradeBit", ".masqueradeAll", ".syncPeriod", ".minSyncPeriod"} {
		if isDefault(to+field) && !isDefault(from+field) {
			at(c, to+field).Set(at(c, from+field))
		}
	}
}

func orElse[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}
