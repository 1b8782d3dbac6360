package config

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	componentconfig "k8s.io/component-base/config/v1alpha1"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/sysctl"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b dataplane.Mode) bool { return a.Name == b.Name }),
	cmpopts.EquateEmpty(),
}

var prefixes = testkit.Prefixes

// Modes are compared by their names.
var nftablesMode, iptablesMode = dataplane.Mode{Name: "nftables"}, dataplane.Mode{Name: "iptables"}

// usual is what --cluster-cidr=10.0.0.0/8 alone means.
func usual() *Settings {
	return &Settings{
		Mode: nftablesMode,
		Plan: plan.Config{
			DetectLocal:       plan.DetectClusterCIDR,
			ClusterCIDRs:      prefixes("10.0.0.0/8"),
			NodePortAddresses: plan.NodePortAddresses{Primary: true},
			MasqueradeBit:     14,
			Algorithms:        model.NewAlgorithms(model.RoundRobin, model.SourceHash, model.Maglev),
			CanEject:          true,
			CanDirectReturn:   true,
			PortRanges:        true,
			LoopbackLocal:     true,
		},
		SyncPeriod: 30 * time.Second,
		Serving:    Serving{Health: netip.MustParseAddrPort("0.0.0.0:10256"), Metrics: netip.MustParseAddrPort("127.0.0.1:10249")},
		Client: Client{ResyncPeriod: 15 * time.Minute, Connection: componentconfig.ClientConnectionConfiguration{
			ContentType: "application/vnd.kubernetes.protobuf", QPS: 5, Burst: 10}},
		Conntrack: sysctl.Conntrack{MaxPerCore: 32768, Min: 131072,
			TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour},
		OOMScoreAdj: -999,
	}
}

func TestResolve(t *testing.T) {
	const cidr = "--cluster-cidr=10.0.0.0/8"
	tests := []struct {
		name string
		in   []string
		want func(*Settings) // changes what cidr alone means
	}{
		{"defaults", []string{cidr}, func(*Settings) {}},
		{"mode nftables by name", []string{cidr, "--proxy-mode=nftables"}, func(*Settings) {}},
		{"ranges of both families", []string{"--cluster-cidr=10.1.2.3/8,fd00::/8"},
			func(s *Settings) {
				s.Plan.ClusterCIDRs = prefixes("10.0.0.0/8", "fd00::/8")
				s.Notes = []model.Problem{problem("clusterCIDR", "10.1.2.3/8 is taken for the whole range 10.0.0.0/8", "write 10.0.0.0/8")}
			}},
		{"ranges of IPv4 written as IPv6", []string{"--cluster-cidr=::ffff:10.1.0.0/112", "--nodeport-addresses=::ffff:192.0.2.0/120"},
			func(s *Settings) {
				s.Plan.ClusterCIDRs = prefixes("10.1.0.0/16")
				s.Plan.NodePortAddresses = plan.NodePortAddresses{Prefixes: prefixes("192.0.2.0/24")}
			}},
		{"pods of this node", []string{"--detect-local-mode=NodeCIDR"},
			func(s *Settings) { s.Plan.DetectLocal, s.Plan.ClusterCIDRs = plan.DetectNodeCIDR, nil }},
		{"pods behind a bridge", []string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0"},
			func(s *Settings) {
				s.Plan.DetectLocal, s.Plan.ClusterCIDRs = plan.DetectBridgeInterface, nil
				s.Plan.BridgeInterface = "cni0"
			}},
		{"pods behind interfaces", []string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=cali"},
			func(s *Settings) {
				s.Plan.DetectLocal, s.Plan.ClusterCIDRs = plan.DetectInterfaceNamePrefix, nil
				s.Plan.InterfaceNamePrefix = "cali"
			}},
		{"node ports on some addresses", []string{cidr, "--nodeport-addresses=primary,192.168.7.9/16"},
			func(s *Settings) {
				s.Plan.NodePortAddresses = plan.NodePortAddresses{Primary: true, Prefixes: prefixes("192.168.0.0/16")}
				s.Notes = []model.Problem{problem("nodePortAddresses[1]", "192.168.7.9/16 is taken for the whole range 192.168.0.0/16", "write 192.168.0.0/16")}
			}},
		{"node ports on some addresses, by a number with zeros", []string{cidr, "--nodeport-addresses=192.168.007.000/24"},
			func(s *Settings) {
				s.Plan.NodePortAddresses = plan.NodePortAddresses{Prefixes: prefixes("192.168.7.0/24")}
			}},
		{"node ports on all addresses", []string{cidr, "--nodeport-addresses=all"},
			func(s *Settings) { s.Plan.NodePortAddresses = plan.NodePortAddresses{All: true} }},
		{"masquerading", []string{cidr, "--masquerade-all", "--iptables-masquerade-bit=31"},
			func(s *Settings) { s.Plan.MasqueradeAll, s.Plan.MasqueradeBit = true, 31 }},
		{"no external IPs", []string{cidr, "--feature-gates=AllowServiceExternalIPs=false"},
			func(s *Settings) { s.Plan.NoExternalIPs = true }},
		{"periods", []string{cidr, "--iptables-sync-period=1m", "--iptables-min-sync-period=1m"},
			func(s *Settings) { s.SyncPeriod, s.MinSyncPeriod = time.Minute, time.Minute }},
		{"upstream's least period, asked for", []string{cidr, "--iptables-min-sync-period=1s"},
			func(s *Settings) { s.MinSyncPeriod = time.Second }},
		{"mode iptables has defaults of its own", []string{cidr, "--proxy-mode=iptables"},
			func(s *Settings) {
				s.Mode, s.MinSyncPeriod = iptablesMode, time.Second
				s.Plan.NodePortAddresses = plan.NodePortAddresses{All: true, Loopback: loopbackAddresses[:1]}
				s.Plan.DropInvalid, s.Plan.FrontendsOnly = true, true
			}},
		{"mode iptables with a liberal kernel drops nothing", []string{cidr, "--proxy-mode=iptables", "--conntrack-tcp-be-liberal", "--nodeport-addresses=primary"},
			func(s *Settings) {
				s.Mode, s.MinSyncPeriod, s.Conntrack.TCPBeLiberal, s.Plan.FrontendsOnly = iptablesMode, time.Second, true, true
			}},
		{"mode iptables goes by its own section", []string{cidr, "--proxy-mode=iptables", "--masquerade-all", "--iptables-masquerade-bit=9",
			"--iptables-sync-period=1m", "--iptables-min-sync-period=0s", "--nodeport-addresses=primary"},
			func(s *Settings) {
				s.Mode, s.SyncPeriod, s.MinSyncPeriod = iptablesMode, time.Minute, 0
				s.Plan.MasqueradeAll, s.Plan.MasqueradeBit, s.Plan.DropInvalid, s.Plan.FrontendsOnly = true, 9, true, true
			}},
		{"name of the node", []string{cidr, "--hostname-override= Node-1 "}, func(s *Settings) { s.HostnameOverride = "node-1" }},
		{"address of the node", []string{cidr, "--bind-address=10.9.8.7"},
			func(s *Settings) { s.Plan.NodeIP = netip.MustParseAddr("10.9.8.7") }},
		{"no address of the node", []string{cidr, "--bind-address=::"}, func(*Settings) {}},
		{"serving", []string{cidr, "--healthz-bind-address=10.0.0.1:1", "--metrics-bind-address=[fd00::1]:2",
			"--bind-address-hard-fail", "--profiling", "--show-hidden-metrics-for-version=1.36"},
			func(s *Settings) {
				s.Serving = Serving{Health: netip.MustParseAddrPort("10.0.0.1:1"), Metrics: netip.MustParseAddrPort("[fd00::1]:2"),
					HardFail: true, Profiling: true, ShowHiddenMetrics: true}
			}},
		{"client", []string{cidr, "--kubeconfig=/k", "--master=https://m", "--kube-api-content-type=application/json",
			"--kube-api-qps=-1", "--kube-api-burst=3", "--config-sync-period=1h"},
			func(s *Settings) {
				s.Client = Client{Master: "https://m", ResyncPeriod: time.Hour, Connection: componentconfig.ClientConnectionConfiguration{
					Kubeconfig: "/k", ContentType: "application/json", QPS: -1, Burst: 3}}
			}},
		{"connection tracking", []string{cidr, "--conntrack-max-per-core=0", "--conntrack-min=1", "--conntrack-tcp-timeout-established=0s",
			"--conntrack-tcp-timeout-close-wait=2s", "--conntrack-tcp-be-liberal", "--conntrack-udp-timeout=3s", "--conntrack-udp-timeout-stream=4s"},
			func(s *Settings) {
				s.Conntrack = sysctl.Conntrack{Min: 1, TCPCloseWait: 2 * time.Second, TCPBeLiberal: true,
					UDP: 3 * time.Second, UDPStream: 4 * time.Second}
			}},
		{"memory", []string{cidr, "--oom-score-adj=-1000"}, func(s *Settings) { s.OOMScoreAdj = -1000 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := usual()
			test.want(want)
			if want.Mode.Name == iptablesMode.Name {
				want.Plan.Algorithms, want.Plan.CanEject, want.Plan.PortRanges, want.Plan.LoopbackLocal = 0, false, false, false
				want.Plan.CanDirectReturn = false
			}
			got, err := parse(t, test.in...).Settings()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compare, cmpopts.IgnoreFields(Settings{}, "Configuration", "Features", "WrittenMode")); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want string // field
		then func(*Settings) bool
	}{
		{"no pods are detected without a cluster CIDR", nil, "clusterCIDR",
			func(s *Settings) bool { return s.Plan.DetectLocal == plan.DetectNone }},
		{"a loopback range that selects nothing",
			[]string{"--detect-local-mode=NodeCIDR", "--nodeport-addresses=primary,127.0.0.2/32"}, "nodePortAddresses[1]",
			func(s *Settings) bool { return s.Plan.NodePortAddresses.Loopback == nil }},
		{"a malformed cluster CIDR that nothing uses",
			[]string{"--detect-local-mode=NodeCIDR", "--cluster-cidr=x"}, "clusterCIDR",
			func(s *Settings) bool { return len(s.Plan.ClusterCIDRs) == 0 }},
		{"a malformed range for another mode",
			[]string{"--detect-local-mode=NodeCIDR", "--ipvs-exclude-cidrs=10.0.0.0/8,x"}, "ipvs.excludeCIDRs[1]",
			func(s *Settings) bool { return s.Mode.Name == "nftables" }},
		{"a bridge with a name that is too long",
			[]string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=a23456789012345x"}, "detectLocal.bridgeInterface",
			func(s *Settings) bool { return s.Plan.DetectLocal == plan.DetectNone }},
		{"a prefix with a slash",
			[]string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=a/b"}, "detectLocal.interfaceNamePrefix",
			func(s *Settings) bool { return s.Plan.DetectLocal == plan.DetectNone }},
		{"a feature gate of long ago",
			[]string{"--detect-local-mode=NodeCIDR", "--feature-gates=EndpointSliceProxying=true"}, "featureGates.EndpointSliceProxying",
			func(s *Settings) bool { return s.Mode.Name == "nftables" }},
		{"ports for another mode",
			[]string{"--detect-local-mode=NodeCIDR", "--proxy-port-range=x"}, "portRange",
			func(s *Settings) bool { return s.Ports == dataplane.PortRange{} }},
		{"a timeout for another mode",
			[]string{"--detect-local-mode=NodeCIDR", "--ipvs-udp-timeout=-1s"}, "ipvs.udpTimeout",
			func(s *Settings) bool { return s.Mode.Name == "nftables" }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := parse(t, test.in...).Settings()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.want}, fields(t, s.Warnings)); diff != "" {
				t.Errorf("fields with a warning (-want +got):\n%s", diff)
			}
			if !test.then(s) {
				t.Errorf("settings are not as expected: %+v", s)
			}
		})
	}
}

func TestErrorsNameTheirField(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want []string
	}{
		{"ipvs mode masquerades as iptables mode", []string{"--proxy-mode=ipvs", "--iptables-masquerade-bit=32"}, []string{"iptables.masqueradeBit"}},
		{"items of a list", []string{"--nodeport-addresses=primary,everywhere,10.0.0.1"}, []string{"nodePortAddresses[1]", "nodePortAddresses[2]"}},
		{"periods the wrong way round", []string{"--iptables-sync-period=1s", "--iptables-min-sync-period=2s"}, []string{"nftables.minSyncPeriod"}},
		{"deprecated port out of range", []string{"--healthz-bind-address=10.0.0.1", "--healthz-port=70000"}, []string{"healthzBindAddress"}},
		{"log, without its feature gate", []string{"--log-text-split-stream"}, []string{"logging.options.text.splitStream"}},
		{"everything at once", []string{"--proxy-mode=kernelspace", "--cluster-cidr=x", "--nodeport-addresses=y",
			"--iptables-masquerade-bit=99", "--ipvs-sync-period=0s", "--feature-gates=No=true", "--detect-local-mode=ClusterCIDR",
			"--ipvs-exclude-cidrs=z", "--oom-score-adj=2000", "--conntrack-min=-2", "--logging-format=xml"},
			[]string{"mode", "featureGates.No", "conntrack.min", "oomScoreAdj", "nodePortAddresses[0]", "nftables.masqueradeBit",
				"clusterCIDR", "logging.format"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(t, test.in...).Settings()
			var errs Errors
			if !errors.As(err, &errs) {
				t.Fatalf("error is %v, want an Errors", err)
			}
			if diff := cmp.Diff(test.want, fields(t, errs)); diff != "" {
				t.Errorf("fields with an error (-want +got):\n%s", diff)
			}
			if got := strings.Count(err.Error(), "\n") + 1; got != len(test.want) {
				t.Errorf("%d lines for %d errors:\n%v", got, len(test.want), err)
			}
		})
	}
}

// fields returns the fields of problems, and checks that each says enough.
func fields(t *testing.T, problems []model.Problem) []string {
	t.Helper()
	var out []string
	for _, p := range problems {
		if p.Reason == "" || p.Remedy == "" {
			t.Errorf("problem %q lacks a reason or a remedy", p)
		}
		out = append(out, p.Field)
	}
	return out
}

func TestResolveDoesNotModify(t *testing.T) {
	c := New()
	if _, err := Resolve(c, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(New(), c); diff != "" {
		t.Errorf("it was changed (-before +after):\n%s", diff)
	}
}

func TestUnavailableModeNamesOthers(t *testing.T) {
	_, err := parse(t, "--proxy-mode=kernelspace").Settings()
	if err == nil || !strings.Contains(err.Error(), `"kernelspace" is not available`) || !strings.Contains(err.Error(), "nftables, iptables, ipvs") {
		t.Errorf("error does not say what is asked for and what there is: %v", err)
	}
}
