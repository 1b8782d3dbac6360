package configuration

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// knownDifference is an intended difference.
type knownDifference struct {
	name string
	// inputs are the names of the inputs that have it.
	inputs *regexp.Regexp
	// field is the field that differs, empty for whether the input is accepted. Ours
	// and upstream are parts of its values, or of the error messages.
	field, ours, upstream string
	// doc is the text about it in docs/configuration.md.
	doc string
}

const (
	isAccepted = "accepted"
	isRefused  = "refused: "
)

var known = []knownDifference{
	{name: "least period", inputs: regexp.MustCompile(``), field: "nftables.minSyncPeriod", ours: "0s", upstream: "1s",
		doc: "`nftables.minSyncPeriod` is 0, no limit, unless it is set"},
	{name: "least period of ipvs mode", inputs: regexp.MustCompile(`^kube-proxy .*--proxy-mode=ipvs`), field: "ipvs.minSyncPeriod", ours: "0s", upstream: "1s",
		doc: "`--proxy-mode=ipvs` without a file has no limit either."},
	{name: "period below the least", inputs: regexp.MustCompile(`nftables.*[pP]eriod[:=] ?1ns|a period shorter than the least by default`), ours: isAccepted, upstream: "SyncPeriod",
		doc: "So `nftables.syncPeriod` may be shorter than a second"},
	{name: "masquerade bit by flag", inputs: regexp.MustCompile(`--iptables-masquerade-bit=`), field: "nftables.masqueradeBit", upstream: "14",
		doc: "`--iptables-masquerade-bit` also applies to nftables mode"},
	{name: "masquerade bit of another mode", inputs: regexp.MustCompile(`mode: nftables iptables: {masqueradeBit: `), ours: isAccepted, upstream: "MasqueradeBit",
		doc: "An invalid `iptables.masqueradeBit` is a warning in nftables mode"},
	{name: "no metrics server", inputs: regexp.MustCompile(`--metrics-port=0`), ours: isAccepted, upstream: "MetricsBindAddress",
		doc: "`--metrics-port=0` disables the metrics server."},
	{name: "address without a port", inputs: regexp.MustCompile(`kube-proxy .*--(healthz|metrics)-bind-address=`), ours: isAccepted, upstream: "must be IP:port",
		doc: "An address without a port is also accepted with `--write-config-to`."},
	{name: "address after none", inputs: regexp.MustCompile(`--healthz-bind-address= --healthz-bind-address=10.0.0.1`), ours: isAccepted, upstream: "panic",
		doc: "A flag for an address that is set twice, first to an empty value, does not panic."},
	{name: "ignored address", inputs: regexp.MustCompile(`beside a file: --(bind|healthz-bind|metrics-bind)-address=`), ours: isAccepted, upstream: "is not",
		doc: "An invalid address in a flag that a file overrides is ignored with the flag"},
	{name: "port with a sign", inputs: regexp.MustCompile(`kube-proxy .*:\+80`), ours: isAccepted, upstream: "not a valid number",
		doc: "A port with a sign, `:+80`, is accepted in a flag, not only in a file."},
	{name: "no cluster CIDR", inputs: regexp.MustCompile(`--cluster-cidr=$`), ours: isAccepted, upstream: "ClusterCIDRs",
		doc: "An empty `--cluster-cidr=` is the same as none"},
	{name: "blank name", inputs: regexp.MustCompile(`hostnameOverride: " "`), ours: isRefused, upstream: isAccepted,
		doc: "A blank `hostnameOverride` is also refused by `--write-config-to`"},
	{name: "text split", inputs: regexp.MustCompile(`LoggingAlphaOptions: true.*text: {splitStream: `), field: "logging.options.text.splitStream", ours: "true",
		doc: "`logging.options.*.splitStream` of a file applies if feature gate LoggingAlphaOptions is on."},
	{name: "json split", inputs: regexp.MustCompile(`LoggingAlphaOptions: true.*json: {splitStream: `), field: "logging.options.json.splitStream", ours: "true",
		doc: "`logging.options.*.splitStream` of a file applies if feature gate LoggingAlphaOptions is on."},
	{name: "flags of Windows", inputs: regexp.MustCompile(`--(network-name|source-vip|enable-dsr|root-hnsendpoint-name|forward-healthcheck-vip|windows-service)=`),
		ours: isAccepted, upstream: "unknown flag",
		doc: "On Linux the flags for Windows are accepted and have no effect, as have `--boot-id-file` and `--machine-id-file` of earlier releases."},
	{name: "flags of earlier releases", inputs: regexp.MustCompile(`--(boot|machine)-id-file=`), ours: isAccepted, upstream: "unknown flag",
		doc: "On Linux the flags for Windows are accepted and have no effect, as have `--boot-id-file` and `--machine-id-file` of earlier releases."},
	{name: "ports of earlier releases", inputs: regexp.MustCompile(`--proxy-port-range=`), ours: isAccepted, upstream: "unknown flag",
		doc: "`mode: userspace` is accepted, with `portRange` and `--proxy-port-range`"},
	{name: "mode of earlier releases", inputs: regexp.MustCompile(`mode[:=] ?"?userspace`), ours: isAccepted, upstream: "ProxyMode",
		doc: "`mode: userspace` is accepted"},
	{name: "feature gates of earlier releases", inputs: regexp.MustCompile(`--feature-gates=\w+=(true|false)$`), ours: isAccepted, upstream: "unrecognized feature gate",
		doc: "Feature gates of earlier releases are accepted."},
}

// knownAs returns the name of an intended difference.
func knownAs(in input, d difference) string {
	for _, k := range known {
		if k.field == d.field && strings.Contains(d.ours, k.ours) && strings.Contains(d.upstream, k.upstream) && k.inputs.MatchString(in.name) {
			return k.name
		}
	}
	return ""
}

func TestKnownDifferencesAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(docs)), " ")
	for _, k := range known {
		if k.doc == "" || !strings.Contains(text, k.doc) {
			t.Errorf("docs/configuration.md does not say of %s: %q", k.name, k.doc)
		}
	}
}
