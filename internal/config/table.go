package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

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
	restartHNS     = "the Host Networking Service is set up at the start"
	restartMetrics = "metrics that were shown cannot be hidden again"
)

const (
	unusedWindows   = "it is for Windows only"
	unusedPortRange = "only the proxy of mode userspace accepts connections itself"
)

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
	own := []string{flagConfig, flagServiceProxyName, flagAllServices, flagExternalIPRanges, flagRejectLocalhost, flagServiceMetrics,
		flagDirectReturn, flagFlowTable}
	return slices.Contains(own, flag) || slices.ContainsFunc(settings, func(s setting) bool { return s.flag == flag && s.decides })
}

// settings maps flags to fields, and lists each field of the configuration. The
// names are upstream's. The default of a flag is what New sets in its field.
//
// The flags with iptables in their names are older than nftables mode and also set
// the nftables fields, which have no flags of their own.
var settings = []setting{
	{path: "featureGates", flag: "feature-gates", decides: true,
		help: "Feature gates, as name=true or name=false, separated by commas. All names of Kubernetes 1.37 are known; these have an effect: " + strings.Join(effectiveGateNames(), ", ") + "."},

	{path: "clientConnection.kubeconfig", flag: "kubeconfig", restart: restartClient,
		help: "Kubeconfig file. Without it and without --master, the proxy connects as a pod."},
	{path: "clientConnection.acceptContentTypes", restart: restartClient},
	{path: "clientConnection.contentType", flag: "kube-api-content-type", restart: restartClient,
		help: "Encoding of requests to the API server, as a media type."},
	{path: "clientConnection.qps", flag: "kube-api-qps", restart: restartClient,
		help: "Requests per second to the API server, at most."},
	{path: "clientConnection.burst", flag: "kube-api-burst", restart: restartClient,
		help: "Requests to the API server at once, before --kube-api-qps limits them."},

	{path: "logging.format", flag: "logging-format", wins: true, restart: restartLogging,
		help: "Format of the log: text or json."},
	{path: "logging.flushFrequency", flag: "log-flush-frequency", wins: true, restart: restartLogging,
		help: "Maximum time that a line of the log is buffered."},
	{path: "logging.verbosity", flag: "v", shorthand: "v", wins: true,
		help: "How much is logged: 0 is the least, 4 names the Services of each commit, 6 their frontends and endpoints."},
	{path: "logging.vmodule", flag: "vmodule", wins: true,
		help: "Verbosity of single source files, as pattern=level, separated by commas. For text logs only."},
	{path: "logging.options.text.splitStream", flag: "log-text-split-stream", wins: true, restart: restartLogging,
		help: "Write the errors of a text log to standard error and the rest to standard output. Needs feature gate LoggingAlphaOptions."},
	{path: "logging.options.text.infoBufferSize", flag: "log-text-info-buffer-size", wins: true, restart: restartLogging,
		help: "Bytes of a text log, without errors, to buffer before they are written, such as 512, 4k or 1Mi. Needs feature gate LoggingAlphaOptions."},
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
		help: "Exit if the proxy cannot listen on an address, instead of retrying."},
	{path: "enableProfiling", flag: "profiling",
		help: "Serve Go profiles of this process under /debug/pprof on the metrics server."},
	{path: "showHiddenMetricsForVersion", flag: "show-hidden-metrics-for-version", restart: restartMetrics,
		help: "Show the metrics that were hidden since this version, as major.minor. Only the version before this one makes sense."},

	{path: modePath, flag: "proxy-mode", decides: true, restart: restartMode,
		help: "How the kernel is programmed. ", modesHelp: modeChoices},
	{path: "iptables.masqueradeBit", flag: "iptables-masquerade-bit", decides: true, also: []string{"nftables.masqueradeBit"},
		help: "Bit of the packet mark, from 0 to 31, that requests masquerading. Applies to nftables mode too."},
	{path: "iptables.masqueradeAll", flag: "masquerade-all", decides: true, also: []string{"nftables.masqueradeAll"},
		help: "Masquerade every connection to a ClusterIP."},
	{path: "iptables.localhostNodePorts", flag: "iptables-localhost-nodeports", decides: true,
		help: "In iptables mode, serve node ports on loopback addresses: on 127.0.0.1 if --nodeport-addresses selects all, and on loopback addresses that it names."},
	{path: "iptables.syncPeriod", flag: "iptables-sync-period", also: []string{"nftables.syncPeriod"},
		help: "How often the kernel is compared with the desired state, and repaired. Applies to nftables mode too."},
	{path: "iptables.minSyncPeriod", flag: "iptables-min-sync-period", also: []string{"nftables.minSyncPeriod"},
		help: "Minimum time between two updates of the kernel. If set, it applies to nftables mode too, which has no minimum by default."},
	{path: "ipvs.syncPeriod", flag: "ipvs-sync-period",
		help: "In ipvs mode, how often the kernel is compared with the desired state, and repaired."},
	{path: "ipvs.minSyncPeriod", flag: "ipvs-min-sync-period",
		help: "In ipvs mode, minimum time between two updates of the kernel."},
	{path: "ipvs.scheduler", flag: "ipvs-scheduler",
		help: "In ipvs mode, the scheduler that chooses endpoints, such as rr, lc, sh or mh. Empty means rr, one after the other."},
	{path: "ipvs.excludeCIDRs", flag: "ipvs-exclude-cidrs", restart: restartIPVS,
		help: "Ranges of virtual services of IPVS that are left alone when an earlier kube-proxy's are removed, in any mode. Other programs' virtual services are left alone anyway."},
	{path: "ipvs.strictARP", flag: "ipvs-strict-arp", restart: restartIPVS,
		help: "In ipvs mode, answer ARP for an address only on the interface that has it (sysctls arp_ignore and arp_announce). Addresses of Services do not need it."},
	{path: "ipvs.tcpTimeout", flag: "ipvs-tcp-timeout", restart: restartIPVS,
		help: "In ipvs mode, time after which an idle TCP connection is forgotten, 0 to keep the kernel's."},
	{path: "ipvs.tcpFinTimeout", flag: "ipvs-tcpfin-timeout", restart: restartIPVS,
		help: "In ipvs mode, time after which a TCP connection is forgotten that was closed by one side, 0 to keep the kernel's."},
	{path: "ipvs.udpTimeout", flag: "ipvs-udp-timeout", restart: restartIPVS,
		help: "In ipvs mode, time after which UDP traffic without packets is forgotten, 0 to keep the kernel's."},
	{path: "nftables.masqueradeBit"},
	{path: "nftables.masqueradeAll"},
	{path: "nftables.syncPeriod"},
	{path: "nftables.minSyncPeriod"},

	{path: "detectLocalMode", flag: "detect-local-mode", decides: true,
		help: "How traffic from pods is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix. Empty means ClusterCIDR."},
	{path: "detectLocal.bridgeInterface", flag: "pod-bridge-interface", decides: true,
		help: "Bridge that the node's pods are attached to. Used with --detect-local-mode=BridgeInterface."},
	{path: "detectLocal.interfaceNamePrefix", flag: "pod-interface-name-prefix", decides: true,
		help: "Prefix of the names of the interfaces of the node's pods. Used with --detect-local-mode=InterfaceNamePrefix."},
	{path: "clusterCIDR", flag: "cluster-cidr", decides: true,
		help: "Range of the cluster's pod addresses; two, separated by a comma, in a dual-stack cluster. Used with --detect-local-mode=ClusterCIDR."},
	{path: "nodePortAddresses", flag: "nodeport-addresses", decides: true,
		help: "Addresses of the node that serve node ports: ranges in CIDR notation, and the words primary, all and localhost, separated by commas. Loopback addresses are served where they are named. Empty means ", modesHelp: nodePortDefaults},

	{path: "oomScoreAdj", flag: "oom-score-adj",
		help: "oom_score_adj of this process, from -1000 (never killed) to 1000."},
	{path: "conntrack.maxPerCore", flag: "conntrack-max-per-core",
		help: "Connections that the kernel may track for each CPU core, 0 to keep its limit."},
	{path: "conntrack.min", flag: "conntrack-min",
		help: "Minimum of connections that the kernel may track, whatever --conntrack-max-per-core gives."},
	{path: "conntrack.tcpEstablishedTimeout", flag: "conntrack-tcp-timeout-established",
		help: "Time after which an idle TCP connection is forgotten, 0 to keep the kernel's."},
	{path: "conntrack.tcpCloseWaitTimeout", flag: "conntrack-tcp-timeout-close-wait",
		help: "Time after which a TCP connection is forgotten that only one side has closed, 0 to keep the kernel's."},
	{path: "conntrack.tcpBeLiberal", flag: "conntrack-tcp-be-liberal", decides: true,
		help: "Also track TCP packets outside the window of their connection."},
	{path: "conntrack.udpTimeout", flag: "conntrack-udp-timeout",
		help: "Time after which UDP traffic without an answer is forgotten, 0 to keep the kernel's."},
	{path: "conntrack.udpStreamTimeout", flag: "conntrack-udp-timeout-stream",
		help: "Time after which UDP traffic in both directions is forgotten, 0 to keep the kernel's."},
	{path: "configSyncPeriod", flag: "config-sync-period", restart: restartClient,
		help: "How often kinds of objects that the API server lacks or denies are requested again. All others are watched."},

	{path: portRangePath, flag: "proxy-port-range", restart: restartPorts,
		help: "In userspace mode, the ports of the node on which the proxy accepts redirected connections: 8 or more, as first-last or first+count. Empty means any that are free."},
	{path: "winkernel.networkName", flag: "network-name", unused: unusedWindows, restart: restartHNS,
		help: "On Windows, the name of the network of the Host Networking Service that the pods are in. Empty means KUBE_NETWORK in the environment."},
	{path: "winkernel.sourceVip", flag: "source-vip", unused: unusedWindows, restart: restartHNS,
		help: "On Windows, with a network of type Overlay, the source address of connections from the node to pods: one of the node's pod range that no pod has."},
	{path: "winkernel.enableDSR", flag: "enable-dsr", unused: unusedWindows, restart: restartHNS,
		help: "On Windows, have endpoints answer the clients of ClusterIPs directly."},
	{path: "winkernel.rootHnsEndpointName", flag: "root-hnsendpoint-name", unused: unusedWindows, restart: restartHNS,
		help: "On Windows, the name of the node's own endpoint, for --forward-healthcheck-vip. Empty means " + defaultRootEndpoint + "."},
	{path: "winkernel.forwardHealthCheckVip", flag: "forward-healthcheck-vip", unused: unusedWindows, restart: restartHNS,
		help: "On Windows, answer health checks of load balancers at their addresses: at the health check node port of a Service or, without one, at the port of --healthz-bind-address."},
	{path: servicePath, flag: "windows-service", unused: unusedWindows,
		help: "On Windows, run as a service with the name kube-proxy, which the service control manager starts and stops."},
}

// modeChoices returns the available modes and what an empty mode means.
func modeChoices() string {
	if mode.Upstream().Name == mode.Preferred().Name {
		return "Available: " + mode.Names() + "."
	}
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
	if len(primary) == 0 {
		return "all."
	}
	return "primary in mode " + strings.Join(primary, " or ") + ", and all in mode " + strings.Join(all, " or ") + "."
}

// at returns the field of a configuration by its path in the file, such as
// nftables.syncPeriod. A test checks that all paths of the table exist.
func at(c *Configuration, path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(path, ".") {
		v = member(v, name)
	}
	return v
}

// member returns a field of a struct by its name in the file.
func member(v reflect.Value, name string) reflect.Value {
	t := v.Type()
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return v.Field(i)
		}
		if tag == "" && t.Field(i).Anonymous {
			if found := member(v.Field(i), name); found.IsValid() {
				return found
			}
		}
	}
	return reflect.Value{}
}

// pointer returns what a flag needs to set a field: a pointer to a string, number,
// bool, duration or list of strings, or a pflag.Value.
func pointer(v reflect.Value) any {
	switch field := v.Addr().Interface().(type) {
	case **int32:
		return *field
	case **bool:
		return *field
	case *v1alpha1.ProxyMode:
		return (*string)(field)
	case *v1alpha1.LocalMode:
		return (*string)(field)
	case *metav1.Duration:
		return &field.Duration
	case **metav1.Duration:
		return &(*field).Duration
	case *logsapi.TimeOrMetaDuration:
		return &field.Duration.Duration
	case *logsapi.VerbosityLevel:
		return logsapi.VerbosityLevelPflag(field)
	case *logsapi.VModuleConfiguration:
		return logsapi.VModuleConfigurationPflag(field)
	case *map[string]bool:
		return cliflag.NewMapStringBool(field)
	default:
		return field
	}
}

// text returns a field as JSON, to compare and to show. No list is an empty one.
func text(v reflect.Value) string {
	if v.Kind() == reflect.Slice && v.Len() == 0 {
		return "[]"
	}
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return string(data)
}
