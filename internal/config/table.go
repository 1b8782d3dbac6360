package config

import (
	"slices"
	"strings"

	"sluice/internal/mode"
)

// setting is a field of the configuration and the flag that sets it.
type setting struct {
	path string // of the field in the file
	flag string // empty if only a file can set the field
	help string
	// modesHelp returns the end of the help, which depends on the modes.
	modesHelp func() string

	shorthand string
	also      []string // further fields that the flag sets
	wins      bool     // the flag takes precedence over a file
	restart   string   // why a change needs a restart, if it does
	unused    string   // why the field has no effect, if it has none
	decides   bool     // it affects the rules in the kernel
}

const (
	// modePath is the path of the field on which other defaults depend.
	modePath = "mode"
	// portRangePath is the path of the field that only some modes have.
	portRangePath = "portRange"
	// hostnamePath is the path of the field whose flag is ignored if it is empty.
	hostnamePath = "hostnameOverride"
)

// Why some fields cannot change while the proxy runs.
const (
	restartLogging = "the form of the log is settled when the first line is written"
	restartClient  = "the connection to the API server is set up at the start"
	restartNode    = "all that is known was asked for in the name of this node"
	restartMode    = "the mechanism in the kernel is chosen at the start"
	restartIPVS    = "IPVS is set up at the start"
	restartPorts   = "the proxy listens from the start"
	restartMetrics = "metrics that were shown cannot be hidden again"
)

const (
	unusedWindows   = "it is for Windows only"
	unusedPortRange = "only the proxy of mode userspace accepts connections itself"
)

// flagOf returns the flag that sets a field.
func flagOf(path string) string {
	for _, s := range settings {
		if s.flag != "" && (s.path == path || slices.Contains(s.also, path)) {
			return s.flag
		}
	}
	return ""
}

// Decides reports whether a flag affects the rules in the kernel.
func Decides(flag string) bool {
	return flag == flagConfig || slices.ContainsFunc(settings, func(s setting) bool { return s.flag == flag && s.decides })
}

// settings maps flags to fields, and lists each field of the configuration. The
// names are upstream's. The default of a flag is what New sets in its field.
//
// The flags with iptables in their names are older than nftables mode and also set
// the nftables fields, which have no flags of their own.
var settings = []setting{
	{path: "featureGates", flag: "feature-gates", decides: true,
		help: "Features to switch on or off, as name=true or name=false, separated by commas. All names of Kubernetes 1.37 are known; those that matter here are " + strings.Join(effectiveGateNames(), ", ") + "."},

	{path: "clientConnection.kubeconfig", flag: "kubeconfig", restart: restartClient,
		help: "File that says how to connect to the API server. Without it and without --master, the connection is that of a pod."},
	{path: "clientConnection.acceptContentTypes", restart: restartClient},
	{path: "clientConnection.contentType", flag: "kube-api-content-type", restart: restartClient,
		help: "Encoding of what is sent to the API server, as a media type."},
	{path: "clientConnection.qps", flag: "kube-api-qps", restart: restartClient,
		help: "How many requests per second go to the API server at most."},
	{path: "clientConnection.burst", flag: "kube-api-burst", restart: restartClient,
		help: "How many requests to the API server may go out at once before --kube-api-qps holds."},

	{path: "logging.format", flag: "logging-format", wins: true, restart: restartLogging,
		help: "Form of the log: text or json."},
	{path: "logging.flushFrequency", flag: "log-flush-frequency", wins: true, restart: restartLogging,
		help: "Longest time that a line of the log is held back."},
	{path: "logging.verbosity", flag: "v", shorthand: "v", wins: true,
		help: "How much is logged: 0 is the least, 4 names the Services of each commit, 6 their frontends and endpoints."},
	{path: "logging.vmodule", flag: "vmodule", wins: true,
		help: "Exceptions from -v for single source files, as pattern=level, separated by commas. For text logs only."},
	{path: "logging.options.text.splitStream", flag: "log-text-split-stream", wins: true, restart: restartLogging,
		help: "Write the errors of a text log to standard error and the rest to standard output. Needs feature gate LoggingAlphaOptions."},
	{path: "logging.options.text.infoBufferSize", flag: "log-text-info-buffer-size", wins: true, restart: restartLogging,
		help: "How many bytes of a text log that is not about errors are gathered before they are written, such as 512, 4k or 1Mi. Needs feature gate LoggingAlphaOptions."},
	{path: "logging.options.json.splitStream", flag: "log-json-split-stream", wins: true, restart: restartLogging,
		help: "As --log-text-split-stream, for json logs."},
	{path: "logging.options.json.infoBufferSize", flag: "log-json-info-buffer-size", wins: true, restart: restartLogging,
		help: "As --log-text-info-buffer-size, for json logs."},

	{path: hostnamePath, flag: "hostname-override", decides: true, wins: true, restart: restartNode,
		help: "Name of this node. Empty means the machine's host name."},
	{path: "bindAddress", flag: "bind-address", decides: true,
		help: "The node's primary IP address, if it is not the one in its Node object. Nothing is bound to it."},
	{path: "healthzBindAddress", flag: "healthz-bind-address",
		help: "Address, or address and port, of the health server."},
	{path: "metricsBindAddress", flag: "metrics-bind-address",
		help: "Address, or address and port, of the metrics server. 0.0.0.0:10249 or [::]:10249 makes it reachable from outside the node."},
	{path: "bindAddressHardFail", flag: "bind-address-hard-fail",
		help: "End the process if an address cannot be listened on, instead of trying again."},
	{path: "enableProfiling", flag: "profiling",
		help: "Offer Go profiles of this process under /debug/pprof on the metrics server."},
	{path: "showHiddenMetricsForVersion", flag: "show-hidden-metrics-for-version", restart: restartMetrics,
		help: "Show the metrics that were hidden since this version, as major.minor. Only the version before this one makes sense."},

	{path: modePath, flag: "proxy-mode", decides: true, restart: restartMode,
		help: "How the kernel is programmed. ", modesHelp: modeChoices},
	{path: "iptables.masqueradeBit", flag: "iptables-masquerade-bit", decides: true, also: []string{"nftables.masqueradeBit"},
		help: "Bit of the packet mark, from 0 to 31, that asks for masquerading. Holds for nftables mode too."},
	{path: "iptables.masqueradeAll", flag: "masquerade-all", decides: true, also: []string{"nftables.masqueradeAll"},
		help: "Give every connection to a ClusterIP the node's address as its source."},
	{path: "iptables.localhostNodePorts", flag: "iptables-localhost-nodeports", decides: true,
		help: "In iptables mode, serve node ports on loopback addresses: on 127.0.0.1 if --nodeport-addresses selects all, and on those that it names."},
	{path: "iptables.syncPeriod", flag: "iptables-sync-period", also: []string{"nftables.syncPeriod"},
		help: "How often the kernel is compared with what it should hold, and mended. Holds for nftables mode too."},
	{path: "iptables.minSyncPeriod", flag: "iptables-min-sync-period", also: []string{"nftables.minSyncPeriod"},
		help: "Least time between two updates of the kernel. When given, it holds for nftables mode too, which otherwise does not wait."},
	{path: "ipvs.syncPeriod", flag: "ipvs-sync-period",
		help: "In ipvs mode, how often the kernel is compared with what it should hold, and mended."},
	{path: "ipvs.minSyncPeriod", flag: "ipvs-min-sync-period",
		help: "In ipvs mode, least time between two updates of the kernel."},
	{path: "ipvs.scheduler", flag: "ipvs-scheduler",
		help: "In ipvs mode, the scheduler that chooses endpoints, such as rr, lc, sh or mh. Empty means rr, one after the other."},
	{path: "ipvs.excludeCIDRs", flag: "ipvs-exclude-cidrs", restart: restartIPVS,
		help: "In ipvs mode, ranges of virtual services that stay as they are when those of an earlier kube-proxy are removed. Those of other programs stay anyway."},
	{path: "ipvs.strictARP", flag: "ipvs-strict-arp", restart: restartIPVS,
		help: "In ipvs mode, answer ARP for an address only on the interface that has it (sysctls arp_ignore and arp_announce). Addresses of Services do not need it."},
	{path: "ipvs.tcpTimeout", flag: "ipvs-tcp-timeout", restart: restartIPVS,
		help: "In ipvs mode, time after which an idle TCP connection is forgotten, 0 to leave it as it is."},
	{path: "ipvs.tcpFinTimeout", flag: "ipvs-tcpfin-timeout", restart: restartIPVS,
		help: "In ipvs mode, time after which a TCP connection is forgotten that was closed by one side, 0 to leave it as it is."},
	{path: "ipvs.udpTimeout", flag: "ipvs-udp-timeout", restart: restartIPVS,
		help: "In ipvs mode, time after which UDP traffic without packets is forgotten, 0 to leave it as it is."},
	{path: "nftables.masqueradeBit"},
	{path: "nftables.masqueradeAll"},
	{path: "nftables.syncPeriod"},
	{path: "nftables.minSyncPeriod"},

	{path: "detectLocalMode", flag: "detect-local-mode", decides: true,
		help: "How traffic from pods is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix. Empty means ClusterCIDR."},
	{path: "detectLocal.bridgeInterface", flag: "pod-bridge-interface", decides: true,
		help: "Bridge that the node's pods are attached to. Used with --detect-local-mode=BridgeInterface."},
	{path: "detectLocal.interfaceNamePrefix", flag: "pod-interface-name-prefix", decides: true,
		help: "Start of the names of the interfaces that lead to the node's pods. Used with --detect-local-mode=InterfaceNamePrefix."},
	{path: "clusterCIDR", flag: "cluster-cidr", decides: true,
		help: "Range of the cluster's pod addresses; two, separated by a comma, in a dual-stack cluster. Used with --detect-local-mode=ClusterCIDR."},
	{path: "nodePortAddresses", flag: "nodeport-addresses", decides: true,
		help: "Addresses of the node that serve node ports: ranges in CIDR notation, and the words primary, all and localhost, separated by commas. Loopback addresses are served where they are named. Empty means ", modesHelp: nodePortDefaults},

	{path: "oomScoreAdj", flag: "oom-score-adj",
		help: "oom_score_adj of this process, from -1000 (never killed) to 1000."},
	{path: "conntrack.maxPerCore", flag: "conntrack-max-per-core",
		help: "How many connections the kernel may track for each CPU core, 0 to leave its limit as it is."},
	{path: "conntrack.min", flag: "conntrack-min",
		help: "How many connections the kernel may track at least, whatever --conntrack-max-per-core makes of it."},
	{path: "conntrack.tcpEstablishedTimeout", flag: "conntrack-tcp-timeout-established",
		help: "Time after which an idle TCP connection is forgotten, 0 to leave it as it is."},
	{path: "conntrack.tcpCloseWaitTimeout", flag: "conntrack-tcp-timeout-close-wait",
		help: "Time after which a TCP connection is forgotten that only one side has closed, 0 to leave it as it is."},
	{path: "conntrack.tcpBeLiberal", flag: "conntrack-tcp-be-liberal", decides: true,
		help: "Track TCP packets also where they do not fit the window of their connection."},
	{path: "conntrack.udpTimeout", flag: "conntrack-udp-timeout",
		help: "Time after which UDP traffic without an answer is forgotten, 0 to leave it as it is."},
	{path: "conntrack.udpStreamTimeout", flag: "conntrack-udp-timeout-stream",
		help: "Time after which UDP traffic in both directions is forgotten, 0 to leave it as it is."},
	{path: "configSyncPeriod", flag: "config-sync-period", restart: restartClient,
		help: "How often kinds of object that the API server does not have, or denies, are asked for again. All others are followed as they change."},

	{path: portRangePath, flag: "proxy-port-range", restart: restartPorts,
		help: "In userspace mode, the ports of the node on which the proxy accepts connections that the kernel leads to it: 8 or more, as first-last or first+count. Empty means any that are free."},
	{path: "winkernel.networkName", flag: "network-name", unused: unusedWindows,
		help: "Name of the cluster's network. No effect on Linux."},
	{path: "winkernel.sourceVip", flag: "source-vip", unused: unusedWindows,
		help: "Source address of the load balancer. No effect on Linux."},
	{path: "winkernel.enableDSR", flag: "enable-dsr", unused: unusedWindows,
		help: "Answer clients directly. No effect on Linux."},
	{path: "winkernel.rootHnsEndpointName", flag: "root-hnsendpoint-name", unused: unusedWindows,
		help: "Name of the root namespace's endpoint. No effect on Linux."},
	{path: "winkernel.forwardHealthCheckVip", flag: "forward-healthcheck-vip", unused: unusedWindows,
		help: "Forward health checks of a Service's address. No effect on Linux."},
	{path: "windowsRunAsService", flag: "windows-service", unused: unusedWindows,
		help: "Run as a Windows service. No effect on Linux."},
}

// modeChoices returns the available modes and what an empty mode means.
func modeChoices() string {
	return "Available: " + mode.Names() + ". Empty means " + mode.Upstream().Name + " where it is installed, and " +
		mode.Preferred().Name + " elsewhere and with --manifests."
}

// nodePortDefaults returns what an empty nodePortAddresses means.
func nodePortDefaults() string {
	var primary, all []string
	for _, m := range mode.All {
		if m.Configuration.PrimaryNodePorts {
			primary = append(primary, m.Name)
		} else {
			all = append(all, m.Name)
		}
	}
	return "primary in mode " + strings.Join(primary, " or ") + ", and all in mode " + strings.Join(all, " or ") + "."
}
