package configuration

import (
	"slices"
	"strings"

	"sluice/internal/config/configtest"
)

// files are those that are not about the value of one field.
var files = []input{
	file("nothing", ""),
	file("blank lines", "\n\n"),
	file("a comment", "# soon\n"),
	file("a mark", "---\n"),
	file("a header", header),
	file("a header between marks", "---\n"+header+"---\n"),
	file("a comment before the first mark", "# mine\n---\n"+header+"mode: iptables\n"),
	file("two documents", header+"mode: iptables\n---\n"+header+"mode: nftables\n"),
	file("a second document of another kind", header+"mode: iptables\n---\napiVersion: v1\nkind: ConfigMap\n"),
	file("a first document of another kind", "apiVersion: v1\nkind: ConfigMap\n---\n"+header),
	file("JSON", `{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","mode":"nftables","clusterCIDR":"10.0.0.0/8"}`),
	file("JSON and more", `{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","mode":"nftables"} more`),
	file("no kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n"),
	file("no version", "kind: KubeProxyConfiguration\n"),
	file("neither", "mode: nftables\n"),
	file("another version", "apiVersion: kubeproxy.config.k8s.io/v1\nkind: KubeProxyConfiguration\n"),
	file("another group", "apiVersion: v1alpha1\nkind: KubeProxyConfiguration\n"),
	file("another kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n"),
	file("kind in lower case", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: kubeproxyconfiguration\n"),
	file("a list", "- a\n- b\n"),
	file("a word", "word\n"),
	file("tabs", header+"mode:\tnftables\n"),
	file("tabs to indent", header+"mode: nftables\nnftables:\n\tmasqueradeBit: 3\n"),
	file("lines of another system", strings.ReplaceAll(header+"mode: nftables\nclusterCIDR: 10.0.0.0/8\n", "\n", "\r\n")),
	file("a byte order mark", "\ufeff"+header+"mode: nftables\n"),
	file("half a file", header+"mode: nftables\nnftables: {masquer"),
	file("an anchor", header+"mode: nftables\nbindAddress: &a 10.0.0.1\nhostnameOverride: *a\n"),
	file("a merge", header+"mode: nftables\nx: &a {masqueradeBit: 3}\nnftables: {<<: *a}\n"),
	file("no UTF-8", header+"mode: nftables\nhostnameOverride: \"\xff\"\n"),
	file("a field that is not known", header+"mode: nftables\nclusterCidr: 10.0.0.0/8\noomScoreAdj: 1\n"),
	file("a field that is not known in a section", header+"mode: nftables\nnftables: {masquerade: true, masqueradeBit: 4}\n"),
	file("a field in lower case", header+"mode: nftables\nclustercidr: 10.0.0.0/8\n"),
	file("a field that is not known, and a wrong value", header+"mode: nftables\nx: 1\noomScoreAdj: 5000\n"),
	file("a field twice", header+"mode: nftables\noomScoreAdj: 1\noomScoreAdj: 2\n"),
	file("a section twice", header+"mode: nftables\nnftables: {masqueradeBit: 1}\nnftables: {masqueradeAll: true}\n"),
	file("a field twice, wrong once", header+"mode: nftables\noomScoreAdj: 5000\noomScoreAdj: 2\n"),
	file("metadata", header+"metadata: {name: x}\nmode: nftables\n"),
	file("as kubeadm writes it", header+kubeadm),
	file("the alpha options of the log", header+"mode: nftables\nfeatureGates: {LoggingAlphaOptions: true}\nlogging: {format: json, options: {json: {infoBufferSize: 1k}}}\n"),
	file("the log in json without the beta options", header+"mode: nftables\nfeatureGates: {LoggingBetaOptions: false}\nlogging: {format: json}\n"),
	file("least period longer than period", header+"mode: nftables\nnftables: {syncPeriod: 1s, minSyncPeriod: 2s}\n"),
	file("least period longer than period of another mode", header+"mode: nftables\niptables: {syncPeriod: 1s, minSyncPeriod: 2s}\n"),
	file("least period longer than period of iptables", header+"mode: iptables\niptables: {syncPeriod: 1s, minSyncPeriod: 2s}\n"),
	file("a period shorter than the least by default", header+"mode: nftables\nnftables: {syncPeriod: 500ms}\n"),
	file("all timeouts of ipvs wrong in another mode", header+"mode: nftables\nipvs: {tcpTimeout: -1s, tcpFinTimeout: -1s, udpTimeout: -1s, excludeCIDRs: [x], syncPeriod: -1s, minSyncPeriod: -1s}\n"),
	file("vmodule of a log in json", header+"mode: nftables\nlogging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}\n"),
	file("vmodule with a wrong pattern", header+"mode: nftables\nlogging: {vmodule: [{filePattern: a=b, verbosity: 1}]}\n"),
	file("vmodule without a pattern", header+"mode: nftables\nlogging: {vmodule: [{verbosity: 1}]}\n"),
	file("vmodule as of a flag", header+"mode: nftables\nlogging: {vmodule: a=1}\n"),
	file("a version that is a number", header+"mode: nftables\nshowHiddenMetricsForVersion: 1.36\n"),
	file("servers after an address", header+"mode: nftables\nbindAddress: '::'\n"),
	file("servers after an address of IPv6", header+"mode: nftables\nbindAddress: fd00::1\nhealthzBindAddress: ''\nmetricsBindAddress: ''\n"),
	file("servers after an address of IPv4 in IPv6", header+"mode: nftables\nbindAddress: '::ffff:10.0.0.1'\nhealthzBindAddress: null\n"),
	file("bridge without a name", header+"mode: nftables\ndetectLocalMode: BridgeInterface\n"),
	file("prefix without a name", header+"mode: nftables\ndetectLocalMode: InterfaceNamePrefix\n"),
	file("name of the other way to detect", header+"mode: nftables\ndetectLocalMode: BridgeInterface\ndetectLocal: {interfaceNamePrefix: x}\n"),
}

// wholeFiles are files, and sections of them, of the wrong type.
func wholeFiles() []input {
	all := slices.Clone(files)
	for _, section := range []string{"clientConnection", "logging", "logging.options", "logging.options.text", "iptables", "ipvs", "nftables", "detectLocal", "conntrack", "winkernel"} {
		for _, value := range odd {
			all = append(all, file(section+": "+value, header+"mode: nftables\n"+configtest.Line(section, value)+"\n"))
		}
	}
	return all
}

// kubeadm is the content of the ConfigMap that kubeadm writes for kube-proxy.
const kubeadm = `bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null, udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
metricsBindAddress: ""
mode: ""
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: "", rootHnsEndpointName: "", sourceVip: ""}
`

// lines are command lines that are not about the value of one flag.
var lines = []input{
	flags(),
	flags(""),
	flags("", "", "--proxy-mode=nftables", ""),
	flags("--proxy-mode", "nftables"),
	flags("--proxy-mode=nftables", "word"),
	flags("--proxy-mode=nftables", "", "word"),
	flags("--proxy-mode=nftables", " "),
	flags("--proxy-mode=nftables", "--", ""),
	flags("--proxy-mode=nftables", "--", "--v=1"),
	flags("-proxy-mode=nftables"),
	flags("--proxy-mode"),
	flags("--proxy-mode=nftables", "-v", "3"),
	flags("--proxy-mode=nftables", "-v3"),
	flags("--proxy-mode=nftables", "-x"),
	flags("--proxy-mode=nftables", "--no-such-flag=word"),
	flags("--proxy-mode=nftables", "--iptables_sync_period=1s"), // underscores are hyphens
	flags("--proxy-mode=iptables", "--iptables_sync_period=-1s"),
	flags("--proxy-mode=nftables", "--masquerade-all", "false"),
	flags("--proxy-mode=nftables", "--proxy-mode=iptables"),
	flags("--proxy-mode=nftables", "--nodeport-addresses=primary", "--nodeport-addresses=10.0.0.0/8"),
	flags("--proxy-mode=nftables", "--vmodule=a=1", "--vmodule=b=2"),
	flags("--proxy-mode=nftables", "--feature-gates=AllAlpha=false", "--feature-gates=AllBeta=true"),
	flags("--proxy-mode=nftables", "--feature-gates=LoggingAlphaOptions=true", "--log-text-split-stream", "--log-text-info-buffer-size=1k"),
	flags("--proxy-mode=nftables", "--feature-gates=LoggingAlphaOptions=true", "--log-json-split-stream", "--logging-format=json"),
	flags("--proxy-mode=nftables", "--logging-format=json", "--vmodule=a=1"),
	flags("--proxy-mode=nftables", "--logging-format=json", "--feature-gates=LoggingBetaOptions=false"),
	flags("--proxy-mode=nftables", "--detect-local-mode=NodeCIDR", "--cluster-cidr=word"),
	flags("--proxy-mode=nftables", "--iptables-sync-period=1s", "--iptables-min-sync-period=2s"),
	flags("--proxy-mode=nftables", "--ipvs-sync-period=1s", "--ipvs-min-sync-period=2s"),
	flags("--proxy-mode=nftables", "--healthz-bind-address=", "--healthz-bind-address=10.0.0.1"),
	flags("--proxy-mode=nftables", "--bind-address=::"),
	flags("--proxy-mode=nftables", "--bind-address=fd00::1", "--healthz-bind-address=::"),
	flags("--config=/does/not/exist"),
	flags("--config="),
	flags("--config", ""),
}

// commandLines are these, and those that set listen addresses in more than one way.
func commandLines() []input {
	all := slices.Clone(lines)
	for _, f := range []string{"healthz", "metrics"} {
		for _, args := range [][]string{nil, {"-port=0"}, {"-port=1"}, {"-port=-1"}, {"-port=70000"}, {"-bind-address=10.0.0.1", "-port=5"},
			{"-bind-address=10.0.0.1:7", "-port=5"}, {"-bind-address=10.0.0.1:7", "-port=0"}, {"-bind-address=::1", "-port=0"}, {"-bind-address=10.0.0.1"}} {
			line := []string{"--proxy-mode=nftables"}
			for _, arg := range args {
				line = append(line, "--"+f+arg)
			}
			in := flags(line...)
			in.name, in.starts = "start with "+in.name, true
			all = append(all, in)
		}
	}
	return all
}

// besideAFile returns the flags of a command line that also names a file with other
// values.
func besideAFile() []input {
	const text = header + `mode: nftables
hostnameOverride: from-file
clusterCIDR: 10.99.0.0/16
oomScoreAdj: 17
logging: {verbosity: 2, flushFrequency: 7s, vmodule: [{filePattern: f, verbosity: 1}]}
nftables: {minSyncPeriod: 3s}
featureGates: {LoggingAlphaOptions: true}
`
	var all []input
	for _, r := range configtest.Rows {
		if r.Flag == "" {
			continue
		}
		for _, values := range [][]string{r.Accepted, r.Refused} {
			for _, i := range []int{0, 1, len(values) - 1} {
				if 0 <= i && i < len(values) {
					arg := r.To(values[i]).Arg()
					all = append(all, file("beside a file: "+arg, text, arg))
				}
			}
		}
	}
	for _, args := range [][]string{{""}, {"-v5"}, {"--vmodule=a=1,b=2"}, {"--logging-format=json"}, {"--log-text-split-stream"}, {"--log-json-info-buffer-size=2k"},
		{"--feature-gates=NoSuchGate=true"}, {"--feature-gates=NativeHistograms=false"}, {"--hostname-override= Other "}, {"--log-flush-frequency=0s"}, {"word"}} {
		all = append(all, file("beside a file: "+strings.Join(args, " "), text, args...))
	}
	return all
}
