package flags

import (
	"slices"
	"testing"
)

// setting is a flag, a field or a feature gate and its value. $dir is the directory
// of the process.
type setting struct {
	flag  string // without hyphens; empty if there is none
	field string // its path in a configuration file; empty if there is none
	gate  string // in place of flag and field
	value string
	yaml  string // the value as a file has it, if that is another
}

// row says what a setting does.
type row struct {
	setting
	// in is the run that sets it, against one that does not.
	in, against string
	// see observes the effect of the setting. It returns want where it is set, and but
	// elsewhere; if but is empty, anything other than want.
	see       func(*proxy) string
	want, but string
	// late rows are checked last: they change something.
	late bool
	// onlyByFile is for rows about configuration files.
	onlyByFile bool
	// alone checks the setting in another way, with its own processes.
	alone func(*testing.T, *bench)
	// without is the help text of a setting without effect.
	without string
}

func (r row) String() string {
	for _, name := range []string{r.gate, r.flag, r.field} {
		if name != "" {
			return name + "=" + r.value
		}
	}
	return "nothing"
}

// run is a process that serves many rows.
type run struct {
	name string
	with []setting // beside those of the rows
	// traffic is set if it has its own lab, with the objects of objects_test.go.
	traffic bool
	byFile  bool // once more, by a configuration file
}

// The runs, by name.
const (
	plain   = "plain"   // nftables mode as it is
	changed = "changed" // nftables mode
	slow    = "slow"    // nftables mode too
	tables  = "iptables"
	tables2 = "iptables otherwise"

	server  = "API server"
	server2 = "API server otherwise"
	limited = "API server rarely asked"

	textSplit   = "split text log"
	textHeld    = "text log held back"
	textFlushed = "text log flushed"
	jsonSplit   = "split JSON log"
	jsonHeld    = "JSON log held back"
	noAlpha     = "log without alpha options"
	noBeta      = "log without beta options"
	noAddress   = "address of another machine"
	hardFail    = "address of another machine is an error"
	ports       = "ports by flags"
)

var (
	nftables  = setting{flag: "proxy-mode", field: "mode", value: "nftables"}
	iptables  = setting{flag: "proxy-mode", field: "mode", value: "iptables"}
	objects   = setting{flag: "manifests", value: "$dir/manifests"}
	node1     = setting{flag: "hostname-override", field: "hostnameOverride", value: "node1"}
	socket    = setting{flag: "control-socket", value: "$dir/socket"}
	noSocket  = setting{flag: "control-socket", value: ""}
	never     = setting{flag: "iptables-sync-period", field: "nftables.syncPeriod", value: "1h"}
	alpha     = setting{gate: "LoggingAlphaOptions", value: "true"}
	loud      = setting{flag: "v", field: "logging.verbosity", value: "4"}
	elsewhere = setting{flag: "metrics-bind-address", field: "metricsBindAddress", value: "203.0.113.99:10249"}

	splitText = setting{flag: "log-text-split-stream", field: "logging.options.text.splitStream", value: "true"}
	splitJSON = setting{flag: "log-json-split-stream", field: "logging.options.json.splitStream", value: "true"}
	largeText = setting{flag: "log-text-info-buffer-size", field: "logging.options.text.infoBufferSize", value: "1Mi"}
	unflushed = setting{flag: "log-flush-frequency", field: "logging.flushFrequency", value: "1h"}
	inJSON    = setting{flag: "logging-format", field: "logging.format", value: "json"}
)

var runs = []run{
	{name: plain, traffic: true, with: []setting{nftables, objects, node1, noSocket}},
	{name: changed, traffic: true, byFile: true, with: []setting{nftables, objects,
		{flag: "nodeport-addresses", field: "nodePortAddresses", value: "primary,localhost", yaml: "[primary, localhost]"}}},
	{name: slow, traffic: true, byFile: true, with: []setting{nftables, node1, socket, never,
		{flag: "conntrack-max-per-core", field: "conntrack.maxPerCore", value: "1"}}},
	{name: tables, traffic: true, byFile: true, with: []setting{objects, node1, socket,
		{flag: "iptables-min-sync-period", field: "iptables.minSyncPeriod", value: "10ms"}}},
	{name: tables2, traffic: true, byFile: true, with: []setting{iptables, objects, node1, socket}},

	{name: server, byFile: true, with: []setting{nftables, node1, noSocket, loud}},
	{name: server2, byFile: true, with: []setting{nftables, node1, noSocket, loud,
		{flag: "kubeconfig", field: "clientConnection.kubeconfig", value: "$dir/kubeconfig"}}},
	{name: limited, byFile: true, with: []setting{nftables, node1, noSocket, {flag: "master", value: secondServer}}},

	{name: textSplit, byFile: true, with: []setting{nftables, objects, node1, noSocket}},
	{name: textHeld, byFile: true, with: []setting{nftables, objects, node1, noSocket, alpha, splitText, unflushed}},
	{name: textFlushed, byFile: true, with: []setting{nftables, objects, node1, noSocket, alpha, splitText, largeText}},
	{name: jsonSplit, byFile: true, with: []setting{nftables, objects, node1, noSocket, alpha}},
	{name: jsonHeld, byFile: true, with: []setting{nftables, objects, node1, noSocket, alpha, inJSON, splitJSON, unflushed}},
	{name: noAlpha, with: []setting{nftables, objects, node1, noSocket, splitText}},
	{name: noBeta, byFile: true, with: []setting{nftables, objects, node1, noSocket, inJSON}},
	{name: noAddress, with: []setting{nftables, objects, node1, noSocket, elsewhere}},
	{name: hardFail, byFile: true, with: []setting{nftables, objects, node1, noSocket, elsewhere}},
	{name: ports, with: []setting{nftables, objects, node1, noSocket,
		{flag: "healthz-bind-address", value: "127.0.0.1"}, {flag: "metrics-bind-address", value: "127.0.0.1"}}},
}

// table has at least one row for each flag, each field and each effective feature
// gate. A test compares it with the binary.
func table() []row {
	return slices.Concat(ofTraffic, ofIPTables, ofServing, ofNode, ofLogging, ofAPIServer, ofCommand, idle)
}

// ofTraffic are the rows about packets in nftables mode.
var ofTraffic = []row{
	{setting: setting{flag: "manifests", value: "$dir/more-manifests"}, in: slow, against: plain,
		see: answered("pod3", "10.96.0.9:80"), want: yes, but: no},
	{setting: setting{flag: "hostname-override", field: "hostnameOverride", value: "node2"}, in: changed, against: plain,
		see: by("pod3", "10.96.0.2:80"), want: "remote1", but: "pod1"},
	{setting: setting{flag: "bind-address", field: "bindAddress", value: "192.0.2.11"}, in: changed, against: plain,
		see: answered("client", "192.0.2.11:30080"), want: yes, but: no},
	{setting: setting{flag: "nodeport-addresses", field: "nodePortAddresses", value: "primary,localhost", yaml: "[primary, localhost]"}, in: slow, against: plain,
		see: answered("node1", "127.0.0.1:30080"), want: yes, but: no},
	{setting: setting{gate: "KubeProxyNFTablesLocalhostNodePorts", value: "false"}, in: changed, against: slow,
		see: answered("node1", "127.0.0.1:30080"), want: no, but: yes},
	{setting: setting{gate: "AllowServiceExternalIPs", value: "false"}, in: changed, against: plain,
		see: answered("client", "198.18.0.1:80"), want: no, but: yes},
	{setting: setting{flag: "cluster-cidr", field: "clusterCIDR", value: "10.244.0.0/16"}, in: changed, against: plain,
		see: answered("pod3", "198.18.0.2:80"), want: yes, but: no},
	{setting: setting{flag: "detect-local-mode", field: "detectLocalMode", value: "BridgeInterface"}, in: slow, against: plain,
		see: sources("client"), want: "node1", but: "client"},
	{setting: setting{flag: "pod-bridge-interface", field: "detectLocal.bridgeInterface", value: "podbr0"}, in: slow, against: plain,
		see: sources("pod2", "pod3"), want: "node1 pod3", but: "pod2 pod3"},
	{setting: setting{flag: "masquerade-all", field: "nftables.masqueradeAll", value: "true"}, in: changed, against: plain,
		see: sources("pod3"), want: "node1", but: "pod3"},
	{setting: setting{flag: "iptables-masquerade-bit", field: "nftables.masqueradeBit", value: "5"}, in: slow, against: plain,
		see: markedSource("pod3"), want: "node1", but: "pod3"},
	{setting: setting{flag: "iptables-sync-period", field: "nftables.syncPeriod", value: "100ms"}, in: changed, against: plain,
		see: verified, want: "again and again", but: "long ago"},
	{setting: setting{flag: "iptables-min-sync-period", field: "nftables.minSyncPeriod", value: "1h"}, in: slow, against: plain,
		see: another, want: "waits", but: "programmed", late: true},
	{setting: setting{flag: "reset-removed-endpoints", value: "true"}, in: changed, against: plain,
		see: stale, want: "reset", but: "goes on", late: true},
	{setting: setting{flag: "exit-on-config-change", value: "true"}, in: slow, against: changed, onlyByFile: true,
		see: moved, want: "ended", but: "goes on", late: true},
}

// ofIPTables are the rows about what differs in iptables mode.
var ofIPTables = []row{
	{setting: iptables, in: tables, against: plain,
		see: kernelHas("KUBE-SERVICES"), want: yes, but: no},
	{setting: setting{flag: "detect-local-mode", field: "detectLocalMode", value: "InterfaceNamePrefix"}, in: tables, against: plain,
		see: sources("client"), want: "node1", but: "client"},
	{setting: setting{flag: "pod-interface-name-prefix", field: "detectLocal.interfaceNamePrefix", value: "podb"}, in: tables, against: plain,
		see: sources("pod2", "pod3"), want: "node1 pod3", but: "pod2 pod3"},
	{setting: setting{flag: "iptables-localhost-nodeports", field: "iptables.localhostNodePorts", value: "false"}, in: tables, against: tables2,
		see: answered("node1", "127.0.0.1:30080"), want: no, but: yes},
	{setting: setting{flag: "iptables-sync-period", field: "iptables.syncPeriod", value: "100ms"}, in: tables, against: tables2,
		see: verified, want: "again and again", but: "long ago"},
	{setting: setting{flag: "iptables-min-sync-period", field: "iptables.minSyncPeriod", value: "30s"}, in: tables2, against: tables,
		see: another, want: "waits", but: "programmed", late: true},
	{setting: setting{flag: "masquerade-all", field: "iptables.masqueradeAll", value: "true"}, in: tables2, against: tables,
		see: sources("pod3"), want: "node1", but: "pod3"},
	{setting: setting{flag: "iptables-masquerade-bit", field: "iptables.masqueradeBit", value: "5"}, in: tables, against: plain,
		see: markedSource("pod3"), want: "node1", but: "pod3"},
}

// ofServing are the rows about HTTP servers and the control socket.
var ofServing = []row{
	{setting: setting{flag: "healthz-bind-address", field: "healthzBindAddress", value: "127.0.0.1:11256"}, in: changed, against: plain,
		see: page("127.0.0.1:11256", "/healthz"), want: "200", but: none},
	{setting: setting{flag: "metrics-bind-address", field: "metricsBindAddress", value: "127.0.0.1:11249"}, in: changed, against: plain,
		see: page("127.0.0.1:11249", "/metrics"), want: "200", but: none},
	{setting: setting{flag: "healthz-port", value: "11256"}, in: ports, against: plain,
		see: page("127.0.0.1:11256", "/healthz"), want: "200", but: none},
	{setting: setting{flag: "metrics-port", value: "11249"}, in: ports, against: plain,
		see: page("127.0.0.1:11249", "/metrics"), want: "200", but: none},
	{setting: setting{flag: "bind-address-hard-fail", field: "bindAddressHardFail", value: "true"}, in: hardFail, against: noAddress,
		see: state, want: "ended with 1", but: "runs"},
	{setting: setting{flag: "profiling", field: "enableProfiling", value: "true"}, in: changed, against: plain,
		see: page("", "/debug/pprof/"), want: "200", but: "404"},
	{setting: setting{gate: "ComponentFlagz", value: "false"}, in: changed, against: plain,
		see: page("", "/flagz"), want: "404", but: "200"},
	{setting: setting{gate: "ComponentStatusz", value: "false"}, in: changed, against: plain,
		see: page("", "/statusz"), want: "404", but: "200"},
	{setting: setting{gate: "NativeHistograms", value: "false"}, in: changed, against: plain,
		see: nativeHistograms, want: no, but: yes},
	{setting: setting{flag: "page", value: "false"}, in: changed, against: plain,
		see: page("", "/"), want: "404", but: "200"},
	{setting: setting{flag: "page-bind-address", value: "127.0.0.1:11247"}, in: ports, against: plain,
		see: page("127.0.0.1:11247", "/"), want: "200", but: none},
	{setting: setting{flag: "service-metrics", value: "false"}, in: changed, against: plain,
		see: metricsHave("sluice_service_connections_total{"), want: no, but: yes},
	{setting: setting{flag: "service-metrics-limit", value: "1"}, in: slow, against: plain,
		see: metricsHave(`service="_other_"`), want: yes, but: no},
	{setting: setting{flag: "control-socket", value: "$dir/socket"}, in: changed, against: plain,
		see: statusCommand, want: "answered", but: "no answer"},
	{setting: setting{flag: "show-hidden-metrics-for-version", field: "showHiddenMetricsForVersion"}, alone: showHiddenMetrics},
}

// ofNode are the rows about settings of the kernel.
var ofNode = []row{
	{setting: setting{flag: "oom-score-adj", field: "oomScoreAdj", value: "777"}, in: changed, against: plain,
		see: oomScoreAdj, want: "777"},
	{setting: setting{flag: "conntrack-max-per-core", field: "conntrack.maxPerCore", value: "0"}, in: changed, against: plain,
		see: scratch("max"), want: untouched},
	{setting: setting{flag: "conntrack-min", field: "conntrack.min", value: "777776"}, in: slow, against: plain,
		see: scratch("max"), want: "777776"},
	{setting: setting{flag: "conntrack-tcp-timeout-established", field: "conntrack.tcpEstablishedTimeout", value: "17m"}, in: changed, against: plain,
		see: sysctl("nf_conntrack_tcp_timeout_established"), want: "1020", but: "86400"},
	{setting: setting{flag: "conntrack-tcp-timeout-close-wait", field: "conntrack.tcpCloseWaitTimeout", value: "71s"}, in: changed, against: plain,
		see: sysctl("nf_conntrack_tcp_timeout_close_wait"), want: "71", but: "3600"},
	{setting: setting{flag: "conntrack-tcp-be-liberal", field: "conntrack.tcpBeLiberal", value: "true"}, in: changed, against: plain,
		see: sysctl("nf_conntrack_tcp_be_liberal"), want: "1", but: "0"},
	{setting: setting{flag: "conntrack-udp-timeout", field: "conntrack.udpTimeout", value: "72s"}, in: changed, against: plain,
		see: sysctl("nf_conntrack_udp_timeout"), want: "72"},
	{setting: setting{flag: "conntrack-udp-timeout-stream", field: "conntrack.udpStreamTimeout", value: "73s"}, in: changed, against: plain,
		see: sysctl("nf_conntrack_udp_timeout_stream"), want: "73"},
}

// ofLogging are the rows about the log.
var ofLogging = []row{
	{setting: setting{flag: "v", field: "logging.verbosity", value: "1"}, in: changed, against: plain,
		see: logHas("Serving metrics"), want: yes, but: no},
	{setting: setting{flag: "vmodule", field: "logging.vmodule", value: "source=2", yaml: "[{filePattern: source, verbosity: 2}]"}, in: slow, against: plain,
		see: logHas("Machine has addresses"), want: yes, but: no},
	{setting: alpha, in: textSplit, against: noAlpha, see: state, want: "runs", but: "ended with 1"},
	{setting: splitText, in: textSplit, against: plain, see: onStdout, want: "text", but: none},
	{setting: largeText, in: textHeld, against: textSplit, see: onStdout, want: none, but: "text"},
	{setting: setting{flag: "log-flush-frequency", field: "logging.flushFrequency", value: "10ms"}, in: textFlushed, against: textHeld,
		see: onStdout, want: "text", but: none},
	{setting: inJSON, in: jsonSplit, against: textSplit, see: onStdout, want: "JSON", but: "text"},
	{setting: splitJSON, in: jsonSplit, against: plain, see: onStdout, want: "JSON", but: none},
	{setting: setting{flag: "log-json-info-buffer-size", field: "logging.options.json.infoBufferSize", value: "1Mi"}, in: jsonHeld, against: jsonSplit,
		see: onStdout, want: none, but: "JSON"},
	{setting: setting{gate: "LoggingBetaOptions", value: "false"}, in: noBeta, against: jsonSplit, see: state, want: "ended with 1", but: "runs"},
	{setting: setting{gate: "ContextualLogging", value: "false"}, in: server2, against: server,
		see: clientLogsAsItself, want: yes, but: no},
}

// ofAPIServer are the rows about requests to the API server.
var ofAPIServer = []row{
	{setting: setting{flag: "kubeconfig", field: "clientConnection.kubeconfig", value: "$dir/kubeconfig"}, in: server, against: limited,
		see: asked, want: firstServer, but: secondServer},
	{setting: setting{flag: "master", value: secondServer}, in: server2, against: server,
		see: asked, want: secondServer, but: firstServer},
	{setting: setting{flag: "kube-api-content-type", field: "clientConnection.contentType", value: "application/json"}, in: server2, against: server,
		see: header("POST", "Content-Type"), want: "application/json", but: "application/vnd.kubernetes.protobuf"},
	{setting: setting{field: "clientConnection.acceptContentTypes", value: "application/json;of=the-file"}, in: server2, against: server,
		see: header("GET", "Accept"), want: "application/json;of=the-file"},
	{setting: setting{flag: "config-sync-period", field: "configSyncPeriod", value: "20ms"}, in: server2, against: server,
		see: looksAgain, want: yes, but: no},
	{setting: setting{flag: "kube-api-qps", field: "clientConnection.qps", value: "0.01"}, in: limited, against: server,
		see: requests, want: "2", but: "more"},
	{setting: setting{flag: "kube-api-burst", field: "clientConnection.burst", value: "2"}, in: limited, against: server,
		see: requests, want: "2", but: "more"},
}

// ofCommand are the rows about flags with which the process exits.
var ofCommand = []row{
	{setting: setting{flag: "help"}, alone: help},
	{setting: setting{flag: "version"}, alone: printVersion},
	{setting: setting{flag: "config"}, alone: configFile},
	{setting: setting{flag: "write-config-to"}, alone: configFile},
	{setting: setting{flag: "init-only"}, alone: initOnly},
	{setting: setting{flag: "cleanup"}, alone: cleanup},
	{setting: setting{flag: "cleanup-own"}, alone: cleanupOwn},
	{setting: setting{flag: "ipvs-drain-timeout"}, alone: drainTimeout},
	{setting: setting{flag: "udp-timeout"}, alone: relayTimes},
	{setting: setting{flag: "shutdown-grace"}, alone: relayTimes},
	{setting: setting{flag: "proxy-mode"}, alone: proxyMode},
	{setting: setting{flag: "sandbox"}, alone: inSandbox},
	{setting: setting{flag: "feature-gates", field: "featureGates"}, alone: unknownGate},
}

// idle are the rows about settings without effect on Linux, or in the mode that is
// tested here. The proxy says so. What those of ipvs mode do is tested where there is
// IPVS: see TestIPVSSettings in package lab, and TestUserspaceSocketsAreNotReachable for
// the range of ports.
var idle = []row{
	{setting: setting{flag: "boot-id-file"}, without: "without effect"},
	{setting: setting{flag: "machine-id-file"}, without: "without effect"},
	noted("proxy-port-range", "portRange", "1000-2000"),
	noted("network-name", "winkernel.networkName", "l2"),
	noted("source-vip", "winkernel.sourceVip", "10.0.0.1"),
	noted("enable-dsr", "winkernel.enableDSR", "true"),
	noted("root-hnsendpoint-name", "winkernel.rootHnsEndpointName", "br9"),
	noted("forward-healthcheck-vip", "winkernel.forwardHealthCheckVip", "true"),
	noted("windows-service", "windowsRunAsService", "true"),
	noted("ipvs-sync-period", "ipvs.syncPeriod", "17s"),
	noted("ipvs-min-sync-period", "ipvs.minSyncPeriod", "3s"),
	noted("ipvs-scheduler", "ipvs.scheduler", "lc"),
	noted("ipvs-exclude-cidrs", "ipvs.excludeCIDRs", "10.0.0.0/8").inFile("[10.0.0.0/8]"),
	noted("ipvs-strict-arp", "ipvs.strictARP", "true"),
	noted("ipvs-tcp-timeout", "ipvs.tcpTimeout", "5s"),
	noted("ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", "6s"),
	noted("ipvs-udp-timeout", "ipvs.udpTimeout", "7s"),
}

// noted returns a row of a setting that the log reports as without effect.
func noted(flag, field, value string) row {
	return row{setting: setting{flag: flag, field: field, value: value}, in: changed, against: plain,
		see: logHas("KubeProxyConfiguration: " + field + ": it has no effect"), want: yes, but: no}
}

// inFile gives the row another value in a configuration file.
func (r row) inFile(yaml string) row {
	r.yaml = yaml
	return r
}
