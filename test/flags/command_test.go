//go:build linux

package flags

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sluice/test/lab"
)

// ending is how a command ended.
type ending struct {
	output string
	code   int
}

// command runs the proxy until it exits, on a host or, without one, in the
// namespace of the test.
func (b *bench) command(t *testing.T, on *lab.Host, args ...string) ending {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.CommandContext(t.Context(), b.binary, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	start := cmd.Start
	if on != nil {
		start = func() error { return on.Do(cmd.Start) }
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	if err := start(); err != nil {
		t.Error(err)
		return ending{code: -1}
	}
	_ = cmd.Wait() // how it ended is in cmd
	return ending{output.String(), cmd.ProcessState.ExitCode()}
}

// onHost gives f a host of its own.
func (b *bench) onHost(f func(*lab.Host)) {
	h := <-b.hosts
	defer func() { b.hosts <- h }()
	f(h)
}

// ends checks how a command ends.
func (b *bench) ends(t *testing.T, on *lab.Host, code int, says string, args ...string) {
	t.Helper()
	if got := b.command(t, on, args...); got.code != code || !strings.Contains(got.output, says) {
		t.Errorf("kube-proxy %s ends with %d, want %d, and says:\n%s\nwant %q in it", strings.Join(args, " "), got.code, code, got.output, says)
	}
}

// Without any flag, the proxy exits because there is no API server.
func help(t *testing.T, b *bench) {
	b.onHost(func(h *lab.Host) {
		b.ends(t, h, 1, "--manifests")
		b.ends(t, h, 0, "Usage:", "--help")
	})
}

func printVersion(t *testing.T, b *bench) {
	if got := b.command(t, nil, "--version"); got.code != 0 || !strings.Contains(strings.ToLower(got.output), "sluice") {
		t.Errorf("--version ends with %d and says %q", got.code, got.output)
	}
}

// configFile checks --config and --write-config-to with each other.
func configFile(t *testing.T, b *bench) {
	dir := tempDir(t)
	file, out := filepath.Join(dir, "in.yaml"), filepath.Join(dir, "out.yaml")
	text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\noomScoreAdj: 17\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"--config=" + file: "oomScoreAdj: 17", "--proxy-mode=nftables": "oomScoreAdj: -999"} {
		b.ends(t, nil, 0, "", flag, "--write-config-to="+out)
		if got := content(out); !strings.Contains(got, want) {
			t.Errorf("with %s it writes no %q:\n%s", flag, want, got)
		}
	}
}

// initOnly applies sysctls and exits, though there is nothing to serve.
func initOnly(t *testing.T, b *bench) {
	b.onHost(func(h *lab.Host) {
		const timeout = "nf_conntrack_tcp_timeout_close_wait"
		b.ends(t, h, 0, "", "--init-only", "--proxy-mode=nftables", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-close-wait=74s")
		if got := sysctlOf(h, timeout); got != "74" {
			t.Errorf("%s is %s", timeout, got)
		}
	})
}

// nft runs nft on a host.
func nft(t *testing.T, h *lab.Host, args ...string) string {
	t.Helper()
	out, err := h.Run(t.Context(), lab.Command{Args: append([]string{"nft"}, args...)})
	if err != nil {
		t.Error(err)
	}
	return out
}

// cleanup removes what another proxy left.
func cleanup(t *testing.T, b *bench) {
	b.onHost(func(h *lab.Host) {
		nft(t, h, "add", "table", "ip", "kube-proxy")
		b.ends(t, h, 0, "No rules of any kube-proxy are left", "--cleanup")
		if tables := nft(t, h, "list", "tables"); strings.Contains(tables, "kube-proxy") {
			t.Errorf("still there are:\n%s", tables)
		}
	})
}

// cleanupOwn leaves alone what another proxy left.
func cleanupOwn(t *testing.T, b *bench) {
	b.onHost(func(h *lab.Host) {
		nft(t, h, "add", "table", "ip", "kube-proxy")
		nft(t, h, "add", "table", "ip", "sluice")
		b.ends(t, h, 0, "None of the rules that only this proxy has are left", "--cleanup-own")
		if tables := nft(t, h, "list", "tables"); tables != "table ip kube-proxy\n" {
			t.Errorf("there are:\n%s", tables)
		}
		nft(t, h, "delete", "table", "ip", "kube-proxy")
	})
}

// proxyMode is a mode of Windows.
func proxyMode(t *testing.T, b *bench) {
	b.ends(t, nil, 1, `mode: proxy mode "kernelspace" is not available`, "--proxy-mode=kernelspace", "--manifests=/nowhere")
}

// inSandbox is no mode of the kernel. What it does is tested without privileges: see
// TestSandbox in package lab.
func inSandbox(t *testing.T, b *bench) {
	b.ends(t, nil, 1, "--sandbox leaves the kernel alone, which nftables mode cannot", "--sandbox", "--proxy-mode=nftables", "--manifests=/nowhere")
	out := filepath.Join(tempDir(t), "out.yaml")
	b.ends(t, nil, 0, "", "--sandbox", "--write-config-to="+out)
	if got := content(out); !strings.Contains(got, "mode: sandbox") {
		t.Errorf("it means another mode:\n%s", got)
	}
}

func unknownGate(t *testing.T, b *bench) {
	b.ends(t, nil, 1, "featureGates.NoSuchGate", "--feature-gates=NoSuchGate=true", "--manifests=/nowhere")
}

// relayTimes checks what is refused. Package lab has tests of what they do, in userspace
// mode.
func relayTimes(t *testing.T, b *bench) {
	b.ends(t, nil, 1, "--udp-timeout: 0s is not a time to wait", "--udp-timeout=0", "--manifests=/nowhere")
	b.ends(t, nil, 1, "--shutdown-grace: -1s is negative", "--shutdown-grace=-1s", "--manifests=/nowhere")
}

// drainTimeout can show nothing on a kernel without IPVS: only the check is visible.
func drainTimeout(t *testing.T, b *bench) {
	b.ends(t, nil, 1, "--ipvs-drain-timeout: -1s is negative", "--ipvs-drain-timeout=-1s", "--manifests=/nowhere")
}

// showHiddenMetrics can show nothing while nothing is hidden: only the check is
// visible.
func showHiddenMetrics(t *testing.T, b *bench) {
	b.ends(t, nil, 1, "showHiddenMetricsForVersion", "--show-hidden-metrics-for-version=1.1", "--manifests=/nowhere")
}
