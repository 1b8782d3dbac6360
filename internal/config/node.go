package config

import (
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the log format json
	baseversion "k8s.io/component-base/version"

	"sluice/internal/kernel/sysctl"
)

// Settings of the process and of the node.

func conntrack(c *Configuration, n *notes) sysctl.Conntrack {
	from := &c.Conntrack
	out := sysctl.Conntrack{
		MaxPerCore: int(*from.MaxPerCore), Min: int(*from.Min),
		TCPEstablished: from.TCPEstablishedTimeout.Duration,
		TCPCloseWait:   from.TCPCloseWaitTimeout.Duration,
		UDP:            from.UDPTimeout.Duration,
		UDPStream:      from.UDPStreamTimeout.Duration,
		TCPBeLiberal:   from.TCPBeLiberal,
	}
	checkCount("conntrack.maxPerCore", out.MaxPerCore, n)
	checkCount("conntrack.min", out.Min, n)
	checkTimeout("conntrack.tcpEstablishedTimeout", out.TCPEstablished, true, n)
	checkTimeout("conntrack.tcpCloseWaitTimeout", out.TCPCloseWait, true, n)
	checkTimeout("conntrack.udpTimeout", out.UDP, true, n)
	checkTimeout("conntrack.udpStreamTimeout", out.UDPStream, true, n)
	return out
}

func checkCount(field string, count int, n *notes) {
	if count < 0 {
		n.fail(field, fmt.Sprintf("%d is negative", count), "set it to 0 to leave the kernel's limit as it is, or to a positive number")
	}
}

func checkTimeout(field string, timeout time.Duration, matters bool, n *notes) {
	if timeout < 0 {
		n.failIf(matters, field, fmt.Sprintf("%v is negative", timeout),
			"set it to 0s to leave the kernel's timeout as it is, or to a positive duration")
	}
}

func oomScoreAdj(score int32, n *notes) int {
	if score < -1000 || score > 1000 {
		n.fail("oomScoreAdj", fmt.Sprintf("%d is out of range", score),
			"set --oom-score-adj to a number from -1000 to 1000")
	}
	return int(score)
}

func client(c *Configuration, n *notes) Client {
	from := &c.ClientConnection
	if from.Burst < 0 {
		n.fail("clientConnection.burst", fmt.Sprintf("%d is negative", from.Burst),
			"set --kube-api-burst to the number of requests that may go out at once")
	}
	resync := c.ConfigSyncPeriod.Duration
	if resync <= 0 {
		n.fail("configSyncPeriod", fmt.Sprintf("%v is not positive", resync),
			"set --config-sync-period to a positive duration such as 15m")
	}
	return Client{Connection: *from, ResyncPeriod: resync}
}

func checkLogging(c *Configuration, features featuregate.FeatureGate, n *notes) {
	for _, err := range logsapi.Validate(&c.Logging, features, field.NewPath("logging")) {
		n.fail(err.Field, err.ErrorBody(), "see --help for the flags of the log, and what values they take")
	}
}

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
