package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sluice/internal/base/release"
)

func TestCommandLineErrorsHaveARemedy(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want []string // in what is written to standard error
	}{
		{"no source of Services", []string{"--cluster-cidr=10.0.0.0/8"},
			[]string{"connect to the API server", "set --manifests to a directory"}},
		{"unknown flag", []string{"--manifests=x", "--frobnicate"}, []string{"unknown flag: --frobnicate"}},
		{"value that cannot be read", []string{"--manifests=x", "--iptables-sync-period=often"}, []string{`invalid argument "often" for "--iptables-sync-period"`}},
		{"version of what", []string{"--version=1.30"}, []string{`invalid argument "1.30" for "--version"`, "true, false or raw, or a version"}},
		{"version of another release", []string{"--version=v1.36.0"}, []string{`invalid argument "v1.36.0" for "--version"`, "it must be a version of v1.37"}},
		{"version to report", []string{"--version=" + release.KubernetesVersion + "-vendor.1", "--proxy-mode=kernelspace"}, []string{`"kernelspace" is not available`}},
		{"no version wanted", []string{"--version=false", "--proxy-mode=kernelspace"}, []string{`"kernelspace" is not available`}},
		{"argument without a flag", []string{"--manifests=x", "stray"}, []string{"stray"}},
		{"negative time to drain", []string{"--manifests=x", "--ipvs-drain-timeout=-1s"}, []string{"--ipvs-drain-timeout: -1s is negative"}},
		{"page at no address", []string{"--manifests=x", "--page-bind-address=localhost"}, []string{`--page-bind-address: "localhost" is not an IP address with a port`}},
		{"page where metrics are", []string{"--manifests=x", "--metrics-bind-address=0.0.0.0:10249", "--page-bind-address=127.0.0.1:10249"},
			[]string{"127.0.0.1:10249 is taken by the metrics on 0.0.0.0:10249"}},
		{"mode that is not available", []string{"--manifests=x", "--proxy-mode=kernelspace"},
			[]string{`"kernelspace" is not available`, "nftables, iptables, ipvs"}},
		{"all mistakes are reported at once",
			[]string{"--proxy-mode=kernelspace", "--iptables-masquerade-bit=77", "--hostname-override= "},
			[]string{`"kernelspace" is not available`, "77 is not a bit", "--hostname-override"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := Main(test.in, &stdout, &stderr); code != 1 {
				t.Errorf("exit code is %d, want 1", code)
			}
			if stdout.Len() > 0 {
				t.Errorf("standard output has %q, want nothing", stdout.String())
			}
			for _, want := range test.want {
				if n := strings.Count(stderr.String(), want); n != 1 {
					t.Errorf("%q is reported %d times, want once, in:\n%s", want, n, stderr.String())
				}
			}
		})
	}
}

func TestVersionAndHelpGoToStandardOutput(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"version", "--version", "Kubernetes " + release.KubernetesVersion + "+sluice."},
		{"version if that is true", "--version=true", "Kubernetes " + release.KubernetesVersion + "+sluice."},
		{"raw version as of all components", "--version=raw", `version.Info{Major:"`},
		{"raw version names the release of Kubernetes", "--version=raw", `version.Info{Major:"1", Minor:"37", `},
		{"raw version names the program that built it", "--version=raw", fmt.Sprintf("GoVersion:%q", runtime.Version())},
		{"help names the flags", "--help", "--nodeport-addresses"},
		{"help shows defaults", "--help", "(default 30s)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := Main([]string{test.in}, &stdout, &stderr); code != 0 {
				t.Errorf("exit code is %d, want 0; standard error: %s", code, stderr.String())
			}
			if !strings.Contains(stdout.String(), test.want) {
				t.Errorf("%q is not in:\n%s", test.want, stdout.String())
			}
		})
	}
}

func TestEmptyArgumentsAreIgnored(t *testing.T) {
	out := filepath.Join(t.TempDir(), "config.yaml")
	var stderr bytes.Buffer
	if code := Main([]string{"", "--write-config-to", out, "", "--cluster-cidr=10.0.0.0/8", ""}, io.Discard, &stderr); code != 0 {
		t.Fatalf("exit code is %d: %s", code, &stderr)
	}
	if _, err := os.Stat(out); err != nil {
		t.Error(err)
	}
	if code := Main([]string{"", "--write-config-to", out, "stray"}, io.Discard, &stderr); code != 1 || !strings.Contains(stderr.String(), `"stray"`) {
		t.Errorf("exit code is %d with an argument that is not empty: %s", code, &stderr)
	}
}

func TestWriteConfigReportsUnknownFields(t *testing.T) {
	in, out := filepath.Join(t.TempDir(), "in.yaml"), filepath.Join(t.TempDir(), "out.yaml")
	const text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.0.0.0/8\nclusterCidr: 11.0.0.0/8\n"
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	if code := Main([]string{"--config", in, "--write-config-to", out}, io.Discard, &stderr); code != 0 {
		t.Fatalf("exit code is %d: %s", code, &stderr)
	}
	if !strings.Contains(stderr.String(), "Warning:") || !strings.Contains(stderr.String(), "clusterCidr") {
		t.Errorf("it says %q", &stderr)
	}
}
