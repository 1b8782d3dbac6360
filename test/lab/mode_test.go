//go:build linux

package lab_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// nowhere is a kubeconfig for an API server that does not exist. The meaning of an
// empty mode is reported before there is an answer.
const nowhere = `
apiVersion: v1
kind: Config
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: x}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
current-context: nowhere
`

// emptyModeConfig is kubeadm's configuration, as far as it matters here.
const emptyModeConfig = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ""
clusterCIDR: 10.244.0.0/16
featureGates: {ComponentStatusz: true}
`

// programs puts the iptables commands into a directory.
type programs func(*iptablesLab, string)

func noPrograms(*iptablesLab, string) {}

// brokenPrograms exist, but the kernel does not support them.
func brokenPrograms(l *iptablesLab, dir string) {
	l.t.Helper()
	for _, name := range []string{"iptables-nft-save", "iptables-nft-restore"} {
		script := "#!/bin/sh\necho 'iptables: Table does not exist (do you need to insmod?)' >&2\nexit 3\n"
		if err := testkit.WriteExecutable(filepath.Join(dir, name), []byte(script)); err != nil {
			l.t.Fatal(err)
		}
	}
}

// An empty mode means what the node supports, and the mode and the reason are
// reported everywhere.
func TestEmptyModeIsIPTablesIfUsable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		programs  programs
		manifests bool
		mode      string
		why       []string
	}{
		{"installed", (*iptablesLab).copyPrograms, false, "iptables", []string{"no mode is set", "nftables is the faster one", "mode: nftables"}},
		{"not installed", noPrograms, false, "nftables", []string{"no mode is set", "iptables is not installed here", "mode: nftables"}},
		{"of no use", brokenPrograms, false, "nftables", []string{"no mode is set", "iptables mode cannot work here", "Table does not exist"}},
		{"installed, with manifests", (*iptablesLab).copyPrograms, true, "nftables", []string{"no mode is set", "--manifests"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inVariant(t, "iptables-nft", func(l *iptablesLab) {
				a, socket := newAsker(t, l.Lab)
				dir := t.TempDir()
				test.programs(l, dir)
				o := lab.ProxyOptions{Binary: l.withPrograms(dir)}
				config := emptyModeConfig + "clientConnection: {kubeconfig: " + l.file("kubeconfig", nowhere) + "}\n"
				o.Flags = []string{socket, "--config", l.file("config.conf", config)}
				if test.manifests {
					o.Manifests = l.dir
				}
				l.proxy = launch(t, l.Lab, o)
				l.expectPage("/proxyMode", "\r\n\r\n"+test.mode)
				l.expectPage("/statusz", "Mode: "+test.mode+" (", test.why...)
				for _, want := range append(test.why, " "+test.mode+" mode") {
					eventually(t, func() bool { out, _, _ := a.ask("status"); return strings.Contains(out, want) })
				}
				for _, want := range append(test.why, `"The mode was not chosen" mode="`+test.mode) {
					eventually(t, func() bool { return strings.Contains(l.proxy.Log().String(), want) })
				}
			})
		})
	}
}

// file writes a file that is not a manifest.
func (l *iptablesLab) file(name, text string) string {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// expectPage waits until a page of the metrics server contains all of these.
func (l *iptablesLab) expectPage(path, want string, more ...string) {
	l.t.Helper()
	metrics := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}
	eventually(l.t, func() bool {
		page, err := l.Get(metrics, path)
		for _, w := range append(more, want) {
			if err != nil || !strings.Contains(page.Text, w) {
				return false
			}
		}
		return true
	})
}

// If iptables was chosen and does not work, that is an error.
func TestUnusableIPTablesIsNotReplaced(t *testing.T) {
	t.Parallel()
	inVariant(t, "iptables-nft", func(l *iptablesLab) {
		dir := t.TempDir()
		brokenPrograms(l, dir)
		l.start(lab.ProxyOptions{Binary: l.withPrograms(dir)})
		l.logs(`Error: iptables mode cannot work here: .*Table does not exist`)
	})
}

// --write-config-to and render use the mode that would be in force.
func TestRenderAgreesOnEmptyMode(t *testing.T) {
	t.Parallel()
	inVariant(t, "iptables-nft", func(l *iptablesLab) {
		dir := t.TempDir()
		l.copyPrograms(dir)
		config := l.file("config.conf", emptyModeConfig)
		for want, binary := range map[string]string{
			"mode: iptables\n": l.withPrograms(dir), "mode: nftables\n": l.withPrograms(t.TempDir()),
		} {
			to := filepath.Join(t.TempDir(), "written")
			l.run("", binary, "--config", config, "--write-config-to", to)
			text, err := os.ReadFile(to)
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%v, there is no %q in\n%s", err, want, text)
			}
		}
		out := l.run("", l.withPrograms(dir), "render", "--config", config, "--manifests", l.dir, "--node", "node1")
		if !strings.Contains(out, "table ip sluice") || !strings.Contains(out, "sets no mode: this is for nftables") {
			t.Errorf("rendered:\n%s", out)
		}
	})
}
