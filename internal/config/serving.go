package config

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/version"
	baseversion "k8s.io/component-base/version"
)

func serving(c *Configuration, n *notes) Serving {
	return Serving{
		Health:            listenAddress("healthzBindAddress", "--healthz-bind-address", c.HealthzBindAddress, healthPort, n),
		Metrics:           listenAddress("metricsBindAddress", "--metrics-bind-address", c.MetricsBindAddress, metricsPort, n),
		HardFail:          c.BindAddressHardFail,
		Profiling:         c.EnableProfiling,
		ShowHiddenMetrics: showHidden(c.ShowHiddenMetricsForVersion, n),
	}
}

// listenAddress parses a listen address. An empty one disables the server.
func listenAddress(field, flag, text string, port int, n *notes) netip.AddrPort {
	if text == "" {
		return netip.AddrPort{}
	}
	address, err := parseAddrPort(text)
	if err != nil {
		n.fail(field, err.Error(), fmt.Sprintf("set %s to an IP address, or to one with a port such as 0.0.0.0:%d or [::]:%d", flag, port, port))
	}
	return address
}

// nodeIP parses the override of the node's address. The unspecified address, which
// is the default, is no override.
func nodeIP(text string, n *notes) netip.Addr {
	addr, ok := parseAddr(text)
	if !ok {
		n.fail("bindAddress", fmt.Sprintf("%q is not an IP address", text), "set --bind-address to an address of this node, or leave it out")
	}
	if addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

// showHidden accepts only the previous version, so that the flag is noticed when it
// is out of date.
func showHidden(text string, n *notes) bool {
	if text == "" {
		return false
	}
	this, err := version.Parse(baseversion.DefaultKubeBinaryVersion)
	if err != nil {
		n.fail("showHiddenMetricsForVersion", err.Error(), "leave --show-hidden-metrics-for-version out")
		return false
	}
	before := fmt.Sprintf("%d.%d", this.Major(), this.Minor()-1)
	if text != before {
		n.fail("showHiddenMetricsForVersion", fmt.Sprintf("%q is not the version before this one", text),
			"set --show-hidden-metrics-for-version to "+before+", or leave it out")
	}
	return true
}
