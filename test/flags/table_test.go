//go:build linux

package flags

import (
	"slices"
	"testing"

	"sluice/internal/config/configtest"
)

// setting is a flag, a field or a feature gate and its value.
type setting = configtest.Setting

// of returns what the table of all flags and fields says, with a value that makes a difference.
func of(name string) setting { return configtest.Of(name).Setting }

// flag returns a flag that is not part of the configuration.
func flag(name, value string) setting { return setting{Flag: name, Value: value} }

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

func (r row) String() string { return r.Name() + "=" + r.Value }

// run is a process that serves many rows, in nftables mode on node1 without a control socket
// unless they say otherwise.
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
	noIPVS      = "ipvs mode without its gate"
	beside      = "beside another proxy"
	onlyOne     = "the only proxy, with a name"
)

var (
	objects   = flag("manifests", "$dir/manifests")
	socket    = flag("control-socket", "$dir/socket")
	named     = flag("service-proxy-name", "trial")
	loud      = of("logging.verbosity").To("4")
	elsewhere = of("metricsBindAddress").To("203.0.113.99:10249")

	always    = []setting{of("mode").To("nftables"), of("hostnameOverride").To("node1"), socket.To("")}
	alpha     = of("featureGates.LoggingAlphaOptions")
	splitText = of("logging.options.text.splitStream")
	splitJSON = of("logging.options.json.splitStream")
	largeText = of("logging.options.text.infoBufferSize")
	unflushed = of("logging.flushFrequency").To("1h")
	inJSON    = of("logging.format")
)

var runs = []run{
	{name: plain, traffic: true, with: []setting{objects}},
	{name: changed, traffic: true, byFile: true, with: []setting{objects, of("nodePortAddresses")}},
	{name: slow, traffic: true, byFile: true, with: []setting{socket, of("nftables.syncPeriod").To("1h"), of("conntrack.maxPerCore").To("1")}},
	{name: tables, traffic: true, byFile: true, with: []setting{objects, socket, of("iptables.minSyncPeriod").To("10ms")}},
	{name: tables2, traffic: true, byFile: true, with: []setting{of("mode"), objects, socket}},

	{name: server, byFile: true, with: []setting{loud}},
	{name: server2, byFile: true, with: []setting{loud, of("clientConnection.kubeconfig")}},
	{name: limited, byFile: true, with: []setting{of("master")}},

	{name: textSplit, byFile: true, with: []setting{objects}},
	{name: textHeld, byFile: true, with: []setting{objects, alpha, splitText, unflushed}},
	{name: textFlushed, byFile: true, with: []setting{objects, alpha, splitText, largeText}},
	{name: jsonSplit, byFile: true, with: []setting{objects, alpha}},
	{name: jsonHeld, byFile: true, with: []setting{objects, alpha, inJSON, splitJSON, unflushed}},
	{name: noAlpha, with: []setting{objects, splitText}},
	{name: noBeta, byFile: true, with: []setting{objects, inJSON}},
	{name: noAddress, with: []setting{objects, elsewhere}},
	{name: hardFail, byFile: true, with: []setting{objects, elsewhere}},
	{name: noIPVS, byFile: true, with: []setting{of("mode").To("ipvs"), objects}},
	{name: beside, with: []setting{objects}},
	{name: onlyOne, with: []setting{objects, named}},
	{name: ports, with: []setting{objects, of("healthzBindAddress").To("127.0.0.1"), of("metricsBindAddress").To("127.0.0.1")}},
}

// table has at least one row for each flag, each field and each effective feature
// gate. A test compares it with the table of all of them, and with the binary.
func table() []row {
	return slices.Concat(ofTraffic, ofIPTables, ofServing, ofNode, ofLogging, ofAPIServer, ofCommand, idle())
}

// ofTraffic are the rows about packets in nftables mode.
var ofTraffic = []row{
	{setting: flag("manifests", "$dir/more-manifests"), in: slow, against: plain, see: answered("pod3", "10.96.0.9:80"), want: yes, but: no},
	{setting: of("hostnameOverride"), in: changed, against: plain, see: by("pod3", "10.96.0.2:80"), want: "remote1", but: "pod1"},
	{setting: of("bindAddress"), in: changed, against: plain, see: answered("client", "192.0.2.11:30080"), want: yes, but: no},
	{setting: of("nodePortAddresses"), in: slow, against: plain, see: answered("node1", "127.0.0.1:30080"), want: yes, but: no},
	{setting: of("featureGates.KubeProxyNFTablesLocalhostNodePorts").To("false"), in: changed, against: slow,
		see: answered("node1", "127.0.0.1:30080"), want: no, but: yes},
	{setting: of("featureGates.AllowServiceExternalIPs"), in: changed, against: plain, see: answered("client", "198.18.0.1:80"), want: no, but: yes},
	{setting: flag("reject-localhost-nodeports", "true"), in: changed, against: plain, see: kernelHas("table ip sluice-loopback"), want: yes, but: no},
	{setting: flag("external-ip-ranges", "198.18.0.2/32,2001:db8::/32"), in: slow, against: plain, see: answered("client", "198.18.0.1:80"), want: no, but: yes},
	{setting: of("clusterCIDR"), in: changed, against: plain, see: answered("pod3", "198.18.0.2:80"), want: yes, but: no},
	{setting: of("detectLocalMode").To("BridgeInterface"), in: slow, against: plain, see: sources("client"), want: "node1", but: "client"},
	{setting: of("detectLocal.bridgeInterface"), in: slow, against: plain, see: sources("pod2", "pod3"), want: "node1 pod3", but: "pod2 pod3"},
	{setting: of("nftables.masqueradeAll"), in: changed, against: plain, see: sources("pod3"), want: "node1", but: "pod3"},
	{setting: of("nftables.masqueradeBit"), in: slow, against: plain, see: markedSource("pod3"), want: "node1", but: "pod3"},
	{setting: of("nftables.syncPeriod"), in: changed, against: plain, see: verified, want: "again and again", but: "long ago"},
	{setting: of("nftables.minSyncPeriod").To("1h"), in: slow, against: plain, see: another, want: "waits", but: "programmed", late: true},
	{setting: flag("eject-failing-endpoints", "true"), in: changed, against: plain, see: kernelHas("table ip sluice-watch"), want: yes, but: no},
	{setting: flag("direct-return", "auto"), in: changed, against: plain, see: hasMetric(`sluice_direct_return_nodes{ip_family="IPv4",state="proven"}`), want: yes, but: no},
	{setting: flag("flow-table", "outside:none"), in: changed, against: plain, see: logHas("Not all connections are forwarded by flow tables"), want: yes, but: no},
	{setting: flag("reset-removed-endpoints", "true"), in: changed, against: plain, see: stale, want: "reset", but: "goes on", late: true},
	{setting: flag("exit-on-config-change", "true"), in: slow, against: changed, onlyByFile: true, see: moved, want: "ended", but: "goes on", late: true},
}

// ofIPTables are the rows about what differs in iptables mode.
var ofIPTables = []row{
	{setting: of("mode"), in: tables, against: plain, see: kernelHas("KUBE-SERVICES"), want: yes, but: no},
	{setting: of("detectLocalMode").To("InterfaceNamePrefix"), in: tables, against: plain, see: sources("client"), want: "node1", but: "client"},
	{setting: of("detectLocal.interfaceNamePrefix"), in: tables, against: plain, see: sources("pod2", "pod3"), want: "node1 pod3", but: "pod2 pod3"},
	{setting: of("iptables.localhostNodePorts"), in: tables, against: tables2, see: answered("node1", "127.0.0.1:30080"), want: no, but: yes},
	{setting: of("iptables.syncPeriod"), in: tables, against: tables2, see: verified, want: "again and again", but: "long ago"},
	{setting: of("iptables.minSyncPeriod"), in: tables2, against: tables, see: another, want: "waits", but: "programmed", late: true},
	{setting: of("iptables.masqueradeAll"), in: tables2, against: tables, see: sources("pod3"), want: "node1", but: "pod3"},
	{setting: of("iptables.masqueradeBit"), in: tables, against: plain, see: markedSource("pod3"), want: "node1", but: "pod3"},
}

// ofServing are the rows about HTTP servers and the control socket.
var ofServing = []row{
	{setting: of("healthzBindAddress"), in: changed, against: plain, see: page("127.0.0.1:11256", "/healthz"), want: "200", but: none},
	{setting: of("metricsBindAddress"), in: changed, against: plain, see: page("127.0.0.1:11249", "/metrics"), want: "200", but: none},
	{setting: of("healthz-port"), in: ports, against: plain, see: page("127.0.0.1:11256", "/healthz"), want: "200", but: none},
	{setting: of("metrics-port"), in: ports, against: plain, see: page("127.0.0.1:11249", "/metrics"), want: "200", but: none},
	{setting: of("bindAddressHardFail"), in: hardFail, against: noAddress, see: state, want: "ended with 1", but: "runs"},
	{setting: of("enableProfiling"), in: changed, against: plain, see: page("", "/debug/pprof/"), want: "200", but: "404"},
	{setting: of("featureGates.ComponentFlagz"), in: changed, against: plain, see: page("", "/flagz"), want: "404", but: "200"},
	{setting: of("featureGates.ComponentStatusz"), in: changed, against: plain, see: page("", "/statusz"), want: "404", but: "200"},
	{setting: of("featureGates.NativeHistograms"), in: changed, against: plain, see: nativeHistograms, want: no, but: yes},
	{setting: flag("page", "false"), in: changed, against: plain, see: page("", "/"), want: "404", but: "200"},
	{setting: flag("page-bind-address", "127.0.0.1:11247"), in: ports, against: plain, see: page("127.0.0.1:11247", "/"), want: "200", but: none},
	{setting: flag("service-metrics", "false"), in: changed, against: plain, see: metricsHave("sluice_service_connections_total{"), want: no, but: yes},
	{setting: flag("service-metrics-limit", "1"), in: slow, against: plain, see: metricsHave(`service="_other_"`), want: yes, but: no},
	{setting: socket, in: changed, against: plain, see: statusCommand, want: "answered", but: "no answer"},
	{setting: of("showHiddenMetricsForVersion"), alone: showHiddenMetrics},
	{setting: flag("node-condition", "true"), in: server, against: plain, see: logHas("The Node does not say whether Services work"), want: yes, but: no},
	{setting: flag("startup-taint", "sluice/starting"), in: server2, against: plain, see: logHas("The Node does not say whether Services work"), want: yes, but: no},
	{setting: named, in: beside, against: plain, see: page("127.0.0.1:10266", "/healthz"), want: "200", but: none},
	{setting: named, in: beside, against: plain, see: kernelHas("table ip sluice.trial"), want: yes, but: no},
	{setting: flag("all-services", "true"), in: onlyOne, against: beside, see: kernelHas("table ip sluice {"), want: yes, but: no},
	{setting: of("featureGates.KubeProxyIPVS"), in: noIPVS, against: plain, see: logHas("forbids proxy mode ipvs"), want: yes, but: no},
}

// ofNode are the rows about settings of the kernel.
var ofNode = []row{
	{setting: of("oomScoreAdj"), in: changed, against: plain, see: oomScoreAdj, want: "777"},
	{setting: of("conntrack.maxPerCore"), in: changed, against: plain, see: scratch("max"), want: untouched},
	{setting: of("conntrack.min"), in: slow, against: plain, see: scratch("max"), want: "777776"},
	{setting: of("conntrack.tcpEstablishedTimeout"), in: changed, against: plain, see: sysctl("nf_conntrack_tcp_timeout_established"), want: "1020", but: "86400"},
	{setting: of("conntrack.tcpCloseWaitTimeout"), in: changed, against: plain, see: sysctl("nf_conntrack_tcp_timeout_close_wait"), want: "71", but: "3600"},
	{setting: of("conntrack.tcpBeLiberal"), in: changed, against: plain, see: sysctl("nf_conntrack_tcp_be_liberal"), want: "1", but: "0"},
	{setting: of("conntrack.udpTimeout"), in: changed, against: plain, see: sysctl("nf_conntrack_udp_timeout"), want: "72"},
	{setting: of("conntrack.udpStreamTimeout"), in: changed, against: plain, see: sysctl("nf_conntrack_udp_timeout_stream"), want: "73"},
}

// ofLogging are the rows about the log.
var ofLogging = []row{
	{setting: of("logging.verbosity"), in: changed, against: plain, see: logHas("Serving metrics"), want: yes, but: no},
	{setting: of("logging.vmodule"), in: slow, against: plain, see: logHas("Machine has addresses"), want: yes, but: no},
	{setting: alpha, in: textSplit, against: noAlpha, see: state, want: "runs", but: "ended with 1"},
	{setting: splitText, in: textSplit, against: plain, see: onStdout, want: "text", but: none},
	{setting: largeText, in: textHeld, against: textSplit, see: onStdout, want: none, but: "text"},
	{setting: of("logging.flushFrequency"), in: textFlushed, against: textHeld, see: onStdout, want: "text", but: none},
	{setting: inJSON, in: jsonSplit, against: textSplit, see: onStdout, want: "JSON", but: "text"},
	{setting: splitJSON, in: jsonSplit, against: plain, see: onStdout, want: "JSON", but: none},
	{setting: of("logging.options.json.infoBufferSize"), in: jsonHeld, against: jsonSplit, see: onStdout, want: none, but: "JSON"},
	{setting: of("featureGates.LoggingBetaOptions"), in: noBeta, against: jsonSplit, see: state, want: "ended with 1", but: "runs"},
	{setting: of("featureGates.ContextualLogging"), in: server2, against: server, see: clientLogsAsItself, want: yes, but: no},
}

// ofAPIServer are the rows about requests to the API server.
var ofAPIServer = []row{
	{setting: of("clientConnection.kubeconfig"), in: server, against: limited, see: asked, want: firstServer, but: secondServer},
	{setting: of("master"), in: server2, against: server, see: asked, want: secondServer, but: firstServer},
	{setting: of("clientConnection.contentType"), in: server2, against: server,
		see: header("POST", "Content-Type"), want: "application/json", but: "application/vnd.kubernetes.protobuf"},
	{setting: of("clientConnection.acceptContentTypes"), in: server2, against: server, see: header("GET", "Accept"), want: "application/json;of=the-file"},
	{setting: of("configSyncPeriod"), in: server2, against: server, see: looksAgain, want: yes, but: no},
	{setting: of("clientConnection.qps"), in: limited, against: server, see: requests, want: "2", but: "more"},
	{setting: of("clientConnection.burst"), in: limited, against: server, see: requests, want: "2", but: "more"},
}

// ofCommand are the rows about flags with which the process exits.
var ofCommand = []row{
	{setting: flag("help", ""), alone: help},
	{setting: flag("version", ""), alone: printVersion},
	{setting: of("config"), alone: configFile},
	{setting: of("write-config-to"), alone: configFile},
	{setting: of("init-only"), alone: initOnly},
	{setting: of("cleanup"), alone: cleanup},
	{setting: flag("cleanup-own", ""), alone: cleanupOwn},
	{setting: flag("ipvs-drain-timeout", ""), alone: drainTimeout},
	{setting: flag("udp-timeout", ""), alone: relayTimes},
	{setting: flag("shutdown-grace", ""), alone: relayTimes},
	{setting: of("mode"), alone: proxyMode},
	{setting: flag("sandbox", ""), alone: inSandbox},
	{setting: of("featureGates"), alone: unknownGate},
}

// idle returns the rows about settings without effect on Linux, or in the mode that is
// tested here. The proxy says so. What those of ipvs mode do is tested where there is
// IPVS: see TestIPVSSettings in package lab, and TestUserspaceSocketsAreNotReachable for
// the range of ports.
func idle() []row {
	rows := []row{
		{setting: of("boot-id-file"), without: "without effect"},
		{setting: of("machine-id-file"), without: "without effect"},
	}
	for _, r := range configtest.Rows {
		if r.Idle {
			rows = append(rows, row{setting: r.Setting, in: changed, against: plain,
				see: logHas("KubeProxyConfiguration: " + r.Field + ": it has no effect"), want: yes, but: no})
		}
	}
	return rows
}
