package configuration

import (
	"fmt"
	"slices"
	"strings"
)

// header starts a configuration file.
const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// input is an input for both kube-proxies.
type input struct {
	// name identifies it in the list of differences.
	name string
	// file is the configuration file, nil for none.
	file *string
	args []string
	// starts is set for a command line that writes no configuration, for flags that do
	// not affect one that is written.
	starts bool
}

func file(name, text string, args ...string) input {
	return input{name: name, file: &text, args: args}
}

func flags(args ...string) input {
	words := []string{"kube-proxy"}
	for _, arg := range args {
		if arg == "" {
			arg = `""`
		}
		words = append(words, arg)
	}
	return input{name: strings.Join(words, " "), args: args}
}

// kind is the type of a field, with various values: in YAML for a file, and plain
// for a flag.
type kind struct{ yaml, flag []string }

var (
	// Every type of value, for fields of another type.
	odd = []string{"null", `""`, "5", "true", "word", "[a]", "{a: b}"}

	boolean = kind{[]string{"true", "false", "yes", `"true"`, "1"}, []string{"", "true", "false", "1", "T", "yes", "maybe"}}
	number  = kind{[]string{"0", "1", "-1", "31", "32", "1000", "1001", "-1000", "-1001", "1.5", "1e3", `"7"`, "2147483647", "2147483648", "-2147483648"},
		[]string{"", "0", "1", "-1", "31", "32", "1000", "1001", "-1001", "0x10", "010", "1.5", "word", "2147483647", "2147483648"}}
	duration = kind{[]string{"0s", "1s", "-1s", "1ns", "1h30m", "1d", "0", `"0"`, "24h", "9000000000s", "10000000000s"},
		[]string{"", "0", "0s", "1s", "-1s", "1ns", "1h30m", "1d", "5", "word"}}
	text = kind{[]string{"some-thing", `" blank "`, "UPPER"}, []string{"", "some-thing", " blank ", "UPPER"}}
)

// of returns a kind of text with these values.
func of(values ...string) kind {
	k := kind{flag: append([]string{""}, values...)}
	for _, value := range values {
		k.yaml = append(k.yaml, fmt.Sprintf("%q", value))
	}
	return k
}

// lists is a list of texts, with commas in between.
func lists(values ...string) kind {
	k := kind{flag: append([]string{""}, values...)}
	for _, value := range values {
		var items []string
		for item := range strings.SplitSeq(value, ",") {
			items = append(items, fmt.Sprintf("%q", item))
		}
		k.yaml = append(k.yaml, "["+strings.Join(items, ", ")+"]")
	}
	return k
}

func (k kind) and(other kind) kind {
	return kind{slices.Concat(k.yaml, other.yaml), slices.Concat(k.flag, other.flag)}
}

var (
	address = of("0.0.0.0", "::", "10.0.0.1", "010.000.000.001", "::ffff:10.0.0.1", "10.0.0.256", "10.0.0.1:80", "[::1]", "localhost",
		"fe80::1%lo", " 10.0.0.1", "fd00::1", "127.0.0.1", "0:0::0")
	endpoint = address.and(of("0.0.0.0:10256", "127.0.0.1:1", "[::]:1", "[::1]:65535", ":10256", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:-1",
		"10.0.0.1:word", "10.0.0.1:010", "10.0.0.1:+80", "10.0.0.1:", "localhost:1", "010.0.0.1:1", "[10.0.0.1]:80", "[fe80::1%lo]:80", "::1:80", "10.0.0.1:80:80", "[::ffff:10.0.0.1]:80"))
	ranges = []string{"10.0.0.0/8", "fd00::/8", "10.0.0.0/8,fd00::/8", "fd00::/8,10.0.0.0/8", "10.0.0.0/8,11.0.0.0/8", "fd00::/8,fd01::/16",
		"10.0.0.0/8,fd00::/8,11.0.0.0/8", "10.1.2.3/8", "010.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/90", "10.0.0.0/8,::ffff:10.0.0.0/104",
		"10.0.0.0/8, fd00::/8", " 10.0.0.0/8", "10.0.0.0/8,", ",", ",10.0.0.0/8", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/0", "0.0.0.0/0,::/0", "10.0.0.0/-1", "10.0.0.0/08",
		"/8", "word", " ", "10.0.0.0/8,word", "::/0", "10.0.0.0/255.0.0.0", "fe80::%lo/64", "10.0.0/8"}
	words      = []string{"primary", "all", "localhost", "primary,primary", "all,all", "primary,localhost", "all,10.0.0.0/8", "PRIMARY", "primary ", "127.0.0.0/8", "::1/128", "127.0.0.1/32", "127.1.0.0/16", "10.0.0.0/8,10.0.0.0/8"}
	interfaces = of("br0", "cali", "a-name-that-is-longer-than-fifteen", "exactly-15-byte", "sixteen-bytes-xy", "with/slash", "with blank", "with:colon", "br+", "br*", ".", "..", "ü")
	sizes      = kind{[]string{"0", "512", "4k", "1Mi", `"0"`, "-1", "1.5", "many"}, []string{"", "0", "512", "4k", "1Mi", "-1", "many"}}
)

// field is one of the configuration, or a flag that sets none.
type field struct {
	path, flag string
	kind       kind
	// with are other fields that the file must have for the field to apply.
	with string
}

var fields = []field{
	{path: "clientConnection.kubeconfig", flag: "kubeconfig", kind: text},
	{path: "clientConnection.acceptContentTypes", kind: text},
	{path: "clientConnection.contentType", flag: "kube-api-content-type", kind: of("application/json", "word")},
	{path: "clientConnection.qps", flag: "kube-api-qps", kind: kind{[]string{"0", "0.5", "-1", "1e10", "1e39", `"5"`}, []string{"", "0", "0.5", "-1", "1e39", "word", "NaN", "Inf"}}},
	{path: "clientConnection.burst", flag: "kube-api-burst", kind: number},
	{path: "logging.format", flag: "logging-format", kind: of("text", "json", "JSON", "xml")},
	{path: "logging.flushFrequency", flag: "log-flush-frequency", kind: kind{append(duration.yaml, "5000000000", "-5"), duration.flag}},
	{path: "logging.verbosity", flag: "v", kind: kind{append(number.yaml, "4294967295", "4294967296"), number.flag}},
	{path: "logging.vmodule", flag: "vmodule", kind: kind{[]string{"[{filePattern: a, verbosity: 1}]", "[{filePattern: '', verbosity: 1}]", "[{filePattern: a=b, verbosity: 1}]",
		"[{filePattern: a, verbosity: -1}]", "[{verbosity: 1}]", "[{filePattern: a}]", "[{filePattern: a, verbosity: 2147483648}]", "a=1"}, []string{"", "a=1", "a=1,b=2", "a", "a=b", "a=-1", "=1", ",", "a=1,a=2", "a*=1"}}},
	{path: "logging.vmodule", kind: kind{yaml: []string{"[{filePattern: a, verbosity: 1}]"}}, with: "logging: {format: json}\n"},
	{path: "logging.options.text.splitStream", flag: "log-text-split-stream", kind: boolean},
	{path: "logging.options.json.splitStream", flag: "log-json-split-stream", kind: boolean},
	{path: "logging.options.text.infoBufferSize", flag: "log-text-info-buffer-size", kind: sizes},
	{path: "logging.options.json.infoBufferSize", flag: "log-json-info-buffer-size", kind: sizes},
	{path: "logging.options.text.infoBufferSize", kind: sizes, with: "featureGates: {LoggingAlphaOptions: true}\n"},
	{path: "hostnameOverride", flag: "hostname-override", kind: text.and(of("node1", " ", "Node-1.example.org", "node_1", "a b"))},
	{path: "bindAddress", flag: "bind-address", kind: address},
	{path: "healthzBindAddress", flag: "healthz-bind-address", kind: endpoint},
	{path: "metricsBindAddress", flag: "metrics-bind-address", kind: endpoint},
	{path: "metricsBindAddress", kind: of(""), with: "bindAddress: '::'\n"},
	{path: "healthzBindAddress", kind: of(""), with: "bindAddress: fd00::1\n"},
	{path: "healthzBindAddress", kind: of(""), with: "bindAddress: '::ffff:10.0.0.1'\n"},
	{path: "bindAddressHardFail", flag: "bind-address-hard-fail", kind: boolean},
	{path: "enableProfiling", flag: "profiling", kind: boolean},
	{path: "showHiddenMetricsForVersion", flag: "show-hidden-metrics-for-version", kind: of("1.36", "1.37", "1.38", "1.35", "1", "v1.36", "1.36.0", " 1.36", "01.36", "word").and(kind{yaml: []string{"1.36"}})},

	{path: "mode", flag: "proxy-mode", kind: of("nftables", "iptables", "ipvs", "NFTables", "userspace", "kernelspace", " nftables", "word")},
	{path: "iptables.masqueradeBit", flag: "iptables-masquerade-bit", kind: number},
	{path: "iptables.masqueradeAll", flag: "masquerade-all", kind: boolean},
	{path: "iptables.localhostNodePorts", flag: "iptables-localhost-nodeports", kind: boolean},
	{path: "iptables.syncPeriod", flag: "iptables-sync-period", kind: duration},
	{path: "iptables.minSyncPeriod", flag: "iptables-min-sync-period", kind: duration},
	{path: "ipvs.syncPeriod", flag: "ipvs-sync-period", kind: duration},
	{path: "ipvs.minSyncPeriod", flag: "ipvs-min-sync-period", kind: duration},
	{path: "ipvs.scheduler", flag: "ipvs-scheduler", kind: of("rr", "word")},
	{path: "ipvs.excludeCIDRs", flag: "ipvs-exclude-cidrs", kind: lists("10.0.0.0/8", "10.0.0.0/8,word", "word", "::ffff:10.0.0.0/104")},
	{path: "ipvs.strictARP", flag: "ipvs-strict-arp", kind: boolean},
	{path: "ipvs.tcpTimeout", flag: "ipvs-tcp-timeout", kind: duration},
	{path: "ipvs.tcpFinTimeout", flag: "ipvs-tcpfin-timeout", kind: duration},
	{path: "ipvs.udpTimeout", flag: "ipvs-udp-timeout", kind: duration},
	{path: "nftables.masqueradeBit", kind: number},
	{path: "nftables.masqueradeAll", kind: boolean},
	{path: "nftables.syncPeriod", kind: duration},
	{path: "nftables.minSyncPeriod", kind: duration},
	{path: "nftables.minSyncPeriod", kind: kind{yaml: []string{"31s", "30s", "29s"}}},
	{path: "iptables.minSyncPeriod", kind: kind{yaml: []string{"31s", "30s", "29s"}}},
	{path: "detectLocalMode", flag: "detect-local-mode", kind: of("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", "clustercidr", "word")},
	{path: "detectLocal.bridgeInterface", flag: "pod-bridge-interface", kind: interfaces},
	{path: "detectLocal.bridgeInterface", kind: interfaces, with: "detectLocalMode: BridgeInterface\n"},
	{path: "detectLocal.interfaceNamePrefix", flag: "pod-interface-name-prefix", kind: interfaces},
	{path: "detectLocal.interfaceNamePrefix", kind: interfaces, with: "detectLocalMode: InterfaceNamePrefix\n"},
	{path: "clusterCIDR", flag: "cluster-cidr", kind: of(ranges...)},
	{path: "clusterCIDR", kind: of(ranges...), with: "detectLocalMode: NodeCIDR\n"},
	{path: "nodePortAddresses", flag: "nodeport-addresses", kind: lists(append(words, ranges...)...)},
	{path: "oomScoreAdj", flag: "oom-score-adj", kind: number},
	{path: "conntrack.maxPerCore", flag: "conntrack-max-per-core", kind: number},
	{path: "conntrack.min", flag: "conntrack-min", kind: number},
	{path: "conntrack.tcpEstablishedTimeout", flag: "conntrack-tcp-timeout-established", kind: duration},
	{path: "conntrack.tcpCloseWaitTimeout", flag: "conntrack-tcp-timeout-close-wait", kind: duration},
	{path: "conntrack.tcpBeLiberal", flag: "conntrack-tcp-be-liberal", kind: boolean},
	{path: "conntrack.udpTimeout", flag: "conntrack-udp-timeout", kind: duration},
	{path: "conntrack.udpStreamTimeout", flag: "conntrack-udp-timeout-stream", kind: duration},
	{path: "configSyncPeriod", flag: "config-sync-period", kind: duration},
	{path: "portRange", kind: of("1-10", "word")},
	{path: "winkernel.networkName", flag: "network-name", kind: text},
	{path: "winkernel.sourceVip", flag: "source-vip", kind: text},
	{path: "winkernel.enableDSR", flag: "enable-dsr", kind: boolean},
	{path: "winkernel.rootHnsEndpointName", flag: "root-hnsendpoint-name", kind: text},
	{path: "winkernel.forwardHealthCheckVip", flag: "forward-healthcheck-vip", kind: boolean},
	{path: "windowsRunAsService", flag: "windows-service", kind: boolean},
	{path: "featureGates", kind: kind{yaml: []string{"{AllAlpha: false}", "{NativeHistograms: yes}", "{NativeHistograms: 1}", "{NativeHistograms: 'true'}", "{NativeHistograms: null}", "{'': true}"}}},

	{flag: "master", kind: text},
	{flag: "init-only", kind: boolean},
	{flag: "boot-id-file", kind: text},
	{flag: "machine-id-file", kind: text},
	{flag: "healthz-port", kind: number},
	{flag: "metrics-port", kind: number},
	{flag: "no-such-flag", kind: text},
	{flag: "iptables_sync_period", kind: duration}, // underscores are hyphens
}

// proxyModes are the modes in which every value is tried if the mode matters.
var proxyModes = []string{"nftables", "iptables"}

// inputs returns all inputs.
func inputs() []input {
	var all []input
	for _, f := range fields {
		all = append(all, f.inFile()...)
		all = append(all, f.onCommandLine()...)
	}
	all = append(all, wholeFiles()...)
	all = append(all, commandLines()...)
	return append(all, besideAFile()...)
}

// inFile returns files with various values.
func (f field) inFile() []input {
	var all []input
	if f.path == "" {
		return nil
	}
	for _, value := range distinct(f.kind.yaml, odd) {
		for _, mode := range f.modes() {
			text := header + mode + f.with + nested(f.path, value) + "\n"
			all = append(all, file(strings.Join(strings.Fields(mode+f.with+nested(f.path, value)), " "), text))
		}
	}
	return all
}

// distinct returns the values of all lists, each once.
func distinct(lists ...[]string) []string {
	values := slices.Concat(lists...)
	slices.Sort(values)
	return slices.Compact(values)
}

// modes returns lines of a file.
func (f field) modes() []string {
	if f.path == "mode" {
		return []string{""}
	}
	modes := []string{"mode: nftables\n"}
	for _, prefix := range []string{"iptables", "nftables", "ipvs", "nodePort"} {
		if strings.HasPrefix(f.path, prefix) {
			modes = append(modes, "mode: iptables\n")
		}
	}
	if strings.HasPrefix(f.path, "iptables") {
		modes = append(modes, "")
	}
	return modes
}

// nested writes a field by its path in one line.
func nested(path, value string) string {
	first, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		return path + ": " + value
	}
	return first + ": {" + nested(rest, value) + "}"
}

// onCommandLine returns command lines with various values.
func (f field) onCommandLine() []input {
	var all []input
	if f.flag == "" {
		return nil
	}
	for _, value := range distinct(f.kind.flag) {
		for _, mode := range proxyModes {
			flag := "--" + f.flag + "=" + value
			switch {
			case f.flag == "proxy-mode":
				all = append(all, flags(flag))
			case mode == "nftables" || strings.Contains(f.flag, "iptables") || strings.Contains(f.flag, "masquerade") || f.flag == "nodeport-addresses":
				all = append(all, flags("--proxy-mode="+mode, flag))
			}
		}
	}
	return all
}
