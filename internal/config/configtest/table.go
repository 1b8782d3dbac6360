// Package configtest has the table of all flags and fields of the configuration for tests,
// with values that are accepted and values that are refused.
//
// Tests in package config check by it what we make of the values, test/cluster/configuration
// that upstream's kube-proxy makes the same of them, and test/flags that every row makes a
// difference that is visible outside of the process. The names are written down once more
// here, apart from the table of package config: a test that took them from there could not
// notice that they changed.
package configtest

import (
	"fmt"
	"slices"
)

// Row is what tests know about a field, or about a flag without one. A flag that sets
// several fields has several rows.
type Row struct {
	// Setting has a value other than the default.
	Setting
	Values
	// With are settings that it needs to have an effect, beside the defaults and nftables mode.
	With []Setting
	// Restart is set if a running proxy cannot change it.
	Restart bool
	// Idle is set if the proxy notes that it has no effect: without With, or always.
	Idle bool
}

// Values are values of a flag.
type Values struct {
	kind              Kind
	Accepted, Refused []string // with With
	// Odd are for comparisons with upstream alone.
	Odd []string
}

// All returns all values.
func (v Values) All() []string { return slices.Concat(v.Accepted, v.Refused, v.Odd) }

// Of returns the row of a field, or of a flag without one.
func Of(name string) Row {
	for _, r := range Rows {
		if r.Name() == name {
			return r
		}
	}
	panic(fmt.Sprintf("there is no row of %q", name))
}

func row(field, flag, value string, values Values) Row {
	return Row{Setting: Setting{field, flag, value, values.kind}, Values: values}
}

func gate(name, value string) Row {
	return row("featureGates."+name, "feature-gates", value, Values{kind: Gate})
}

func (r Row) with(settings ...Setting) Row { r.With = settings; return r }
func (r Row) restart() Row                 { r.Restart = true; return r }
func (r Row) idle() Row                    { r.Idle = true; return r }
func (r Row) and(odd ...string) Row        { r.Odd = slices.Concat(r.Odd, odd); return r }

var (
	mode      = Setting{Field: "mode", Flag: "proxy-mode"}
	iptables  = mode.To("iptables")
	ipvs      = mode.To("ipvs")
	userspace = mode.To("userspace")
	alpha     = gate("LoggingAlphaOptions", "true").Setting
)

// Rows is the table.
var Rows = []Row{
	row("featureGates", "feature-gates", "", Values{Accepted: []string{"", ",", "NativeHistograms=true", " NativeHistograms = true "},
		Refused: []string{"NativeHistograms", "NativeHistograms=", "NativeHistograms=yes"}}).and(
		"{AllAlpha: false}", "{NativeHistograms: yes}", "{NativeHistograms: 1}", "{NativeHistograms: 'true'}", "{NativeHistograms: null}", "{'': true}"),
	gate("AllowServiceExternalIPs", "false"),
	gate("KubeProxyNFTablesLocalhostNodePorts", "true"),
	gate("ComponentFlagz", "false").restart(),
	gate("ComponentStatusz", "false").restart(),
	gate("ContextualLogging", "false").restart(),
	gate("KubeProxyIPVS", "false").restart(),
	gate("LoggingAlphaOptions", "true").restart(),
	gate("LoggingBetaOptions", "false").restart(),
	gate("NativeHistograms", "false").restart(),

	row("clientConnection.kubeconfig", "kubeconfig", "$dir/kubeconfig", anything).restart(),
	row("clientConnection.acceptContentTypes", "", "application/json;of=the-file", anything).restart(),
	row("clientConnection.contentType", "kube-api-content-type", "application/json", texts("", "application/json", "word")).restart(),
	row("clientConnection.qps", "kube-api-qps", "0.01", Values{Accepted: []string{"0", "0.5", "-1", "NaN", "Inf"}, Refused: []string{"", "1e39", "word"}}).and("1e10", `"5"`).restart(),
	row("clientConnection.burst", "kube-api-burst", "2", numbers(0, most)).restart(),

	row("logging.format", "logging-format", "json", texts("text", "json").except("", "JSON", "xml")).restart(),
	row("logging.flushFrequency", "log-flush-frequency", "10ms", durations(1, forever)).and("5000000000", "-5").restart(),
	row("logging.verbosity", "v", "1", Values{Accepted: []string{"0", "1", "31", "010", "1000", "2147483647"}, Refused: []string{"", "-1", "-1001", "0x10", "1.5", "word", "2147483648"}}).and(
		"32", "1001", "-1000", "1e3", `"7"`, "-2147483648", "4294967295", "4294967296"),
	row("logging.vmodule", "vmodule", "source=2", Values{kind: Levels, Accepted: []string{"", "a=1", "a=1,b=2", ",", "a=1,a=2", "a*=1"}, Refused: []string{"a", "a=b", "a=-1", "=1", "a=2147483648"}}),
	row("logging.options.text.splitStream", "log-text-split-stream", "true", boolean).with(alpha).restart(),
	row("logging.options.json.splitStream", "log-json-split-stream", "true", boolean).with(alpha).restart(),
	row("logging.options.text.infoBufferSize", "log-text-info-buffer-size", "1Mi", sizes).with(alpha).restart(),
	row("logging.options.json.infoBufferSize", "log-json-info-buffer-size", "1Mi", sizes).with(alpha).restart(),

	row("hostnameOverride", "hostname-override", "node2", anything.or("node1", "Node-1.example.org", "node_1", "a b").except(" ")).restart(),
	row("bindAddress", "bind-address", "192.0.2.11", addresses.except("10.0.0.1:80")),
	row("healthzBindAddress", "healthz-bind-address", "127.0.0.1:11256", endpoints),
	row("metricsBindAddress", "metrics-bind-address", "127.0.0.1:11249", endpoints),
	row("bindAddressHardFail", "bind-address-hard-fail", "true", boolean),
	row("enableProfiling", "profiling", "true", boolean),
	row("showHiddenMetricsForVersion", "show-hidden-metrics-for-version", "1.36", texts("", "1.36").except("1.37", "1.38", "1.35", "1.1", "1", "v1.36", "1.36.0", " 1.36", "01.36", "word")).restart(),

	// Otherwise the default of nodePortAddresses changes as well.
	row("mode", "proxy-mode", "iptables", texts("", "nftables", "iptables", "ipvs", "userspace").except("NFTables", "kernelspace", " nftables", "word")).with(
		Setting{"nodePortAddresses", "nodeport-addresses", "all", List}).restart(),
	row("iptables.masqueradeBit", "iptables-masquerade-bit", "5", numbers(0, 31)).with(iptables),
	row("iptables.masqueradeAll", "masquerade-all", "true", boolean).with(iptables),
	row("iptables.localhostNodePorts", "iptables-localhost-nodeports", "false", boolean).with(iptables).idle(),
	row("iptables.syncPeriod", "iptables-sync-period", "100ms", durations(1, forever)).with(iptables, Setting{"iptables.minSyncPeriod", "iptables-min-sync-period", "1ns", Plain}),
	row("iptables.minSyncPeriod", "iptables-min-sync-period", "30s", durations(0, period)).with(iptables),
	row("ipvs.syncPeriod", "ipvs-sync-period", "17s", durations(1, forever)).with(ipvs).idle(),
	row("ipvs.minSyncPeriod", "ipvs-min-sync-period", "3s", durations(0, period)).with(ipvs).idle(),
	row("ipvs.scheduler", "ipvs-scheduler", "lc", texts("", "rr", "word")).with(ipvs).idle(),
	row("ipvs.excludeCIDRs", "ipvs-exclude-cidrs", "10.0.0.0/8", lists("", "10.0.0.0/8", "::ffff:10.0.0.0/104").except("10.0.0.0/8,word", "word")).with(ipvs).restart().idle(),
	row("ipvs.strictARP", "ipvs-strict-arp", "true", boolean).with(ipvs).restart().idle(),
	row("ipvs.tcpTimeout", "ipvs-tcp-timeout", "5s", durations(0, forever)).with(ipvs).restart().idle(),
	row("ipvs.tcpFinTimeout", "ipvs-tcpfin-timeout", "6s", durations(0, forever)).with(ipvs).restart().idle(),
	row("ipvs.udpTimeout", "ipvs-udp-timeout", "7s", durations(0, forever)).with(ipvs).restart().idle(),
	row("nftables.masqueradeBit", "iptables-masquerade-bit", "5", numbers(0, 31)),
	row("nftables.masqueradeAll", "masquerade-all", "true", boolean),
	row("nftables.syncPeriod", "iptables-sync-period", "100ms", durations(1, forever)),
	row("nftables.minSyncPeriod", "iptables-min-sync-period", "30s", durations(0, period)),

	row("detectLocalMode", "detect-local-mode", "NodeCIDR", texts("", "ClusterCIDR", "NodeCIDR").except("clustercidr", "word")).and("BridgeInterface", "InterfaceNamePrefix"),
	row("detectLocal.bridgeInterface", "pod-bridge-interface", "podbr0", interfaces).with(
		Setting{"detectLocalMode", "detect-local-mode", "BridgeInterface", Text}, Setting{"detectLocal.bridgeInterface", "pod-bridge-interface", "br0", Text}),
	row("detectLocal.interfaceNamePrefix", "pod-interface-name-prefix", "podb", interfaces).with(
		Setting{"detectLocalMode", "detect-local-mode", "InterfaceNamePrefix", Text}, Setting{"detectLocal.interfaceNamePrefix", "pod-interface-name-prefix", "br0", Text}),
	row("clusterCIDR", "cluster-cidr", "10.244.0.0/16", texts("").or(ranges...).except(noRanges...).except(twoRanges...)),
	row("nodePortAddresses", "nodeport-addresses", "primary,localhost", lists("").or(ranges...).or(twoRanges...).or(
		"primary", "all", "localhost", "primary,localhost", "all,10.0.0.0/8", "127.0.0.0/8", "::1/128", "127.0.0.1/32", "127.1.0.0/16", "10.0.0.0/8,10.0.0.0/8").except(
		noRanges...).except("primary,primary", "all,all", "PRIMARY", "primary ")),

	row("oomScoreAdj", "oom-score-adj", "777", numbers(-1000, 1000)),
	row("conntrack.maxPerCore", "conntrack-max-per-core", "0", numbers(0, most)),
	row("conntrack.min", "conntrack-min", "777776", numbers(0, most)),
	row("conntrack.tcpEstablishedTimeout", "conntrack-tcp-timeout-established", "17m", durations(0, forever)),
	row("conntrack.tcpCloseWaitTimeout", "conntrack-tcp-timeout-close-wait", "71s", durations(0, forever)),
	row("conntrack.tcpBeLiberal", "conntrack-tcp-be-liberal", "true", boolean),
	row("conntrack.udpTimeout", "conntrack-udp-timeout", "72s", durations(0, forever)),
	row("conntrack.udpStreamTimeout", "conntrack-udp-timeout-stream", "73s", durations(0, forever)),
	row("configSyncPeriod", "config-sync-period", "20ms", durations(1, forever)).restart(),

	row("portRange", "proxy-port-range", "1000-2000", texts("", "1-10", "1000+7").except("1000", "1000-1006", "70000-70010", "word")).with(userspace).restart().idle(),
	row("winkernel.networkName", "network-name", "l2", anything).restart().idle(),
	row("winkernel.sourceVip", "source-vip", "10.0.0.1", anything).restart().idle(),
	row("winkernel.enableDSR", "enable-dsr", "true", boolean).restart().idle(),
	row("winkernel.rootHnsEndpointName", "root-hnsendpoint-name", "br9", anything).restart().idle(),
	row("winkernel.forwardHealthCheckVip", "forward-healthcheck-vip", "true", boolean).restart().idle(),
	row("windowsRunAsService", "windows-service", "true", boolean).idle(),

	row("", "config", "", Values{}),
	row("", "write-config-to", "", Values{}),
	row("", "cleanup", "true", Values{}),
	row("", "init-only", "true", boolean),
	row("", "master", "http://127.0.0.1:6444", anything),
	row("", "healthz-port", "11256", numbers(-most-1, most)),
	row("", "metrics-port", "11249", numbers(-most-1, most)),
	row("", "boot-id-file", "", anything),
	row("", "machine-id-file", "", anything),
}
