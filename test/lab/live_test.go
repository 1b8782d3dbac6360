//go:build linux

package lab_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

const liveConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
`

// A changed configuration file is applied in the running process and breaks no
// connection; an invalid one is reported and changes nothing.
func TestConfigurationFileIsFollowedLive(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	write(t, etc, "config.yaml", liveConfig, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", filepath.Join(etc, "config.yaml")}})
	settle(t, p, dir, 0)
	service := netip.MustParseAddrPort("10.96.0.1:80")
	flow := lab.Flow{From: "pod3", Protocol: lab.TCP, To: service}
	traffic, err := l.StartTraffic(t.Context(), []lab.Flow{flow}, lab.TrafficOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, node := hostAddr(t, l, "pod3"), hostAddr(t, l, "node1")
	sees(t, l, flow, pod)

	write(t, etc, "config.yaml", liveConfig+"nftables: {masqueradeAll: true}\n", 0)
	sees(t, l, flow, node)

	mark := p.Log().Len()
	write(t, etc, "config.yaml", liveConfig+"nftables: {masqueradeBit: 77}\nnodePortAddresses: [nonsense]\n", 0)
	eventually(t, func() bool {
		lines, _ := p.Log().From(mark)
		text := strings.Join(lines, "\n")
		return strings.Contains(text, "nftables.masqueradeBit") && strings.Contains(text, "nonsense")
	})
	sees(t, l, flow, node)

	if err := os.Remove(filepath.Join(etc, "config.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, etc, "config.yaml", liveConfig, 0)
	sees(t, l, flow, pod)
	if count := traffic.Stop(); count.Lost() > 0 {
		t.Errorf("connections were lost: %v", count)
	}
}

// What cannot be applied is reported, and ends the process if configured.
func TestConfigurationThatNeedsARestart(t *testing.T) {
	t.Parallel()
	for _, exit := range []bool{false, true} {
		l := lab.Start(t)
		dir, etc := t.TempDir(), t.TempDir()
		write(t, dir, "good.yaml", goodManifests, 0)
		write(t, etc, "config.yaml", liveConfig, 0)
		p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{
			"--config", filepath.Join(etc, "config.yaml"), fmt.Sprintf("--exit-on-config-change=%t", exit)}})
		settle(t, p, dir, 0)
		write(t, etc, "config.yaml", liveConfig+"configSyncPeriod: 7m\nnftables: {masqueradeAll: true}\n", 0)
		eventually(t, func() bool {
			return strings.Contains(p.Log().String(), "this needs a restart of the proxy") &&
				strings.Contains(p.Log().String(), "--exit-on-config-change is set") == exit
		})
		flow := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")}
		if exit {
			sees(t, l, flow, hostAddr(t, l, "pod3")) // the rules stay as they were
		} else {
			sees(t, l, flow, hostAddr(t, l, "node1"))
		}
	}
}

func hostAddr(t *testing.T, l *lab.Lab, name string) netip.Addr {
	t.Helper()
	h, err := l.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return h.Addrs[0]
}

// sees waits until the endpoint of a flow sees this source.
func sees(t *testing.T, l *lab.Lab, f lab.Flow, source netip.Addr) {
	t.Helper()
	eventually(t, func() bool {
		o := l.Connect(t.Context(), f)
		return o.Kind == lab.Answered && o.Source.Addr() == source
	})
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	testkit.Until(t, holds)
}

// The mode waits for a restart, and so do defaults that depend on it. /configz
// shows what is in force.
func TestModeDefaultsWaitForRestart(t *testing.T) {
	t.Parallel()
	const elsewhere = "192.0.2.77" // an address of the node that is not its primary one
	start := strings.Replace(liveConfig, "mode: nftables\n", "", 1)
	for _, tt := range []struct {
		mode, other string
		elsewhere   lab.Kind // of node ports there
	}{
		{"nftables", "iptables", lab.Refused},
		{"iptables", "nftables", lab.Answered},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			l := lab.Start(t)
			node, err := l.Host("node1")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := node.Run(t.Context(), lab.Command{Args: []string{"ip", "address", "add", elsewhere + "/32", "dev", "lo"}}); err != nil {
				t.Fatal(err)
			}
			dir, etc := t.TempDir(), t.TempDir()
			write(t, dir, "good.yaml", strings.Replace(goodManifests, "ports: [{port: 80}]", "type: NodePort\n  ports: [{port: 80, nodePort: 30080}]", 1), 0)
			path := filepath.Join(etc, "config.yaml")
			write(t, etc, "config.yaml", start+"mode: "+tt.mode+"\n", 0)
			p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", path}})
			settle(t, p, dir, 0)
			there := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort(elsewhere + ":30080")}
			eventually(t, func() bool { return l.Connect(t.Context(), there).Kind == tt.elsewhere })
			before := configz(t, l)

			mark := p.Log().Len()
			write(t, etc, "config.yaml", start+"mode: "+tt.other+"\noomScoreAdj: 77\nunknownField: 1\n", 0)
			eventually(t, func() bool {
				lines, _ := p.Log().From(mark)
				text := strings.Join(lines, "\n")
				return strings.Contains(text, "this needs a restart of the proxy") && strings.Contains(text, "unknownField")
			})
			eventually(t, func() bool { return strings.Contains(configz(t, l), `"oomScoreAdj":77`) })
			if got := strings.Replace(configz(t, l), `"oomScoreAdj":77`, `"oomScoreAdj":-999`, 1); got != before {
				t.Errorf("what is in force changed\nfrom %s\nto   %s", before, got)
			}
			if o := l.Connect(t.Context(), there); o.Kind != tt.elsewhere {
				t.Errorf("a node port elsewhere: %v, want %v as before", o, tt.elsewhere)
			}
		})
	}
}

// configz returns the configuration that the proxy shows.
func configz(t *testing.T, l *lab.Lab) string {
	t.Helper()
	var page lab.Page
	eventually(t, func() bool { // the server may only be starting
		var err error
		page, err = l.Get(lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}, "/configz")
		return err == nil && page.Status == http.StatusOK
	})
	_, body, _ := strings.Cut(page.Text, "\r\n\r\n")
	return body
}

// A kernel that looks too old for nftables mode is refused, unless the check is
// disabled as upstream allows.
func TestKernelLooksTooOld(t *testing.T) {
	t.Parallel()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "kube-proxy")
	script := fmt.Sprintf("#!/bin/sh\nexec setarch \"$(uname -m)\" --uname-2.6 %q \"$@\"\n", binary)
	if err := testkit.WriteExecutable(old, []byte(script)); err != nil {
		t.Fatal(err)
	}
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	options := lab.ProxyOptions{Binary: old, Manifests: dir, Flags: []string{"--proxy-mode=nftables"}}
	p := launch(t, l, options)
	eventually(t, func() bool {
		return strings.Contains(p.Log().String(), "needs Linux 5.13 or newer, and this is 2.6.") &&
			strings.Contains(p.Log().String(), "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK")
	})
	options.Env = []string{"KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=true"}
	p = launch(t, l, options)
	settle(t, p, dir, 0)
	eventually(t, func() bool {
		return l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")}).Kind == lab.Answered
	})
}
