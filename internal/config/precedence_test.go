package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// file writes a configuration file and returns the flag for it.
func file(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(header+body), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--config=" + path
}

func TestFlagsBesideAFile(t *testing.T) {
	const body = "clusterCIDR: 10.0.0.0/8\nhostnameOverride: from-file\n" +
		"logging: {verbosity: 2, flushFrequency: 7s, vmodule: [{filePattern: f, verbosity: 1}]}\n"
	vmodule := func(patterns ...string) (out logsapi.VModuleConfiguration) {
		for _, p := range patterns {
			out = append(out, logsapi.VModuleItem{FilePattern: p, Verbosity: 1})
		}
		return out
	}
	tests := []struct {
		name  string
		in    []string
		want  func(*Configuration)
		warns []string
	}{
		{"several are ignored with a warning", []string{"--cluster-cidr=11.0.0.0/8", "--masquerade-all", "--healthz-port=0"},
			func(*Configuration) {}, []string{"iptables.masqueradeAll", "clusterCIDR", ""}},
		{"name of the node", []string{"--hostname-override=From-Flag"},
			func(c *Configuration) { c.HostnameOverride = "from-flag" }, nil},
		{"no name of the node", []string{"--hostname-override="}, func(*Configuration) {}, nil},
		{"verbosity back to nothing", []string{"-v=0"}, func(c *Configuration) { c.Logging.Verbosity = 0 }, nil},
		{"exceptions of the flag come first", []string{"--vmodule=a=1,b=1"},
			func(c *Configuration) { c.Logging.VModule = vmodule("a", "b", "f") }, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := file(t, body)
			want, _, err := parse(t, config).Load()
			if err != nil {
				t.Fatal(err)
			}
			if want.HostnameOverride != "from-file" || want.Logging.Verbosity != 2 || len(want.Logging.VModule) != 1 {
				t.Fatalf("the file was not read: %+v", want)
			}
			test.want(want)
			got, problems, err := parse(t, append(test.in, config)...).Load()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.warns, fields(t, problems)); diff != "" {
				t.Errorf("fields with a warning (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMasterOverridesTheFile(t *testing.T) {
	s, err := parse(t, "--master=https://api:6443", file(t, "clusterCIDR: 10.0.0.0/8\n")).Settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.Client.Master != "https://api:6443" {
		t.Errorf("the address is %q", s.Client.Master)
	}
}

func TestListenAddresses(t *testing.T) {
	tests := []struct {
		name            string
		in              []string
		health, metrics string
		warnings        int
	}{
		{"default", nil, "0.0.0.0:10256", "127.0.0.1:10249", 0},
		{"addresses", []string{"--healthz-bind-address=10.0.0.1:1", "--metrics-bind-address=[::]:2"}, "10.0.0.1:1", "[::]:2", 0},
		{"no port", []string{"--healthz-bind-address=::", "--metrics-bind-address=10.0.0.1"}, "[::]:10256", "10.0.0.1:10249", 0},
		{"nothing is like nothing said", []string{"--healthz-bind-address=", "--metrics-bind-address="}, "0.0.0.0:10256", "127.0.0.1:10249", 0},
		{"deprecated ports for addresses without one",
			[]string{"--healthz-bind-address=10.0.0.1", "--healthz-port=1", "--metrics-bind-address=::1", "--metrics-port=2"}, "10.0.0.1:1", "[::1]:2", 0},
		{"deprecated ports do not replace another, as with upstream",
			[]string{"--healthz-port=1", "--metrics-bind-address=10.0.0.1:9", "--metrics-port=2"}, "0.0.0.0:10256", "10.0.0.1:9", 2},
		{"no servers", []string{"--healthz-port=0", "--metrics-port=0"}, "", "", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := parse(t, append(test.in, "--cluster-cidr=10.0.0.0/8")...).Settings()
			if err != nil {
				t.Fatal(err)
			}
			show := func(a netip.AddrPort) string {
				if !a.IsValid() {
					return ""
				}
				return a.String()
			}
			got := []string{show(s.Serving.Health), show(s.Serving.Metrics)}
			if diff := cmp.Diff([]string{test.health, test.metrics}, got); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if len(s.Warnings) != test.warnings {
				t.Errorf("%d warnings, want %d: %v", len(s.Warnings), test.warnings, s.Warnings)
			}
		})
	}
}

func TestWrittenConfigurationKeepsServers(t *testing.T) {
	s, err := parse(t, "--write-config-to=x", "--healthz-port=0").Settings()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Configuration.HealthzBindAddress; got != "0.0.0.0:10256" {
		t.Errorf("healthzBindAddress is %q", got)
	}
}

func TestSplitStreamOfAFileNeedsItsGate(t *testing.T) {
	const split = "logging: {format: json, options: {text: {splitStream: true}, json: {splitStream: true}}}\n"
	tests := []struct {
		name  string
		in    []string
		body  string
		want  bool
		warns []string
	}{
		{"without the gate it is ignored, as with upstream", nil, split, false, []string{"logging.options.text.splitStream", "logging.options.json.splitStream"}},
		{"with the gate it counts", nil, split + "featureGates: {LoggingAlphaOptions: true}\n", true, nil},
		{"with all gates of its stage it counts", nil, split + "featureGates: {AllAlpha: true, AllBeta: true}\n", true, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := parse(t, file(t, "clusterCIDR: 10.0.0.0/8\n"+test.body)).Settings()
			if err != nil {
				t.Fatal(err)
			}
			if options := s.Configuration.Logging.Options; options.Text.SplitStream != test.want || options.JSON.SplitStream != test.want {
				t.Errorf("the log is split: %+v, want %t", options, test.want)
			}
			if diff := cmp.Diff(test.warns, fields(t, s.Warnings)); diff != "" {
				t.Errorf("fields with a warning (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := parse(t, file(t, ""), "--log-text-split-stream").Settings(); err == nil {
		t.Error("the flag was accepted without the gate")
	}
}

// A command that is not the proxy may give flags precedence.
func TestFlagsThatOverride(t *testing.T) {
	flags := parse(t, "--kubeconfig=mine", "--cluster-cidr=11.0.0.0/8", file(t, "clientConnection: {kubeconfig: of-the-file}\nclusterCIDR: 10.0.0.0/8\n"))
	flags.Overrides = []string{"kubeconfig"}
	got, problems, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	if got.ClientConnection.Kubeconfig != "mine" || got.ClusterCIDR != "10.0.0.0/8" || len(problems) != 1 || problems[0].Field != "clusterCIDR" {
		t.Errorf("kubeconfig %q, cluster CIDR %q, %v", got.ClientConnection.Kubeconfig, got.ClusterCIDR, problems)
	}
}
