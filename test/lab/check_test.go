//go:build linux

package lab_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/cli/check"
	"sluice/test/fakeapi"
	"sluice/test/lab"
)

// nodeState returns all that a check must leave alone: the rules, the settings of the
// network, the links and the kernel's modules.
func nodeState(t *testing.T, a *asker) string {
	t.Helper()
	const script = `nft list ruleset; ip link; ip rule; cat /proc/modules 2>/dev/null | cut -d' ' -f1
find /proc/sys/net -type f -readable ! -name 'flush' ! -name 'nf_conntrack_count' | sort | xargs -r grep -s . || true`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	var out []byte
	err := a.node.Do(func() (err error) { out, err = cmd.Output(); return err })
	if err != nil {
		t.Fatal(err)
	}
	// A cookie of TCP and the state of random numbers change by themselves.
	return strings.Join(slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool {
		return strings.Contains(line, "random") || strings.Contains(line, "tcp_fastopen_key") || strings.Contains(line, "/gc_")
	}), "\n")
}

// check tells what to do before the switch, and changes nothing.
func TestCheckBeforeTheSwitch(t *testing.T) {
	l := lab.Start(t)
	a, _ := newAsker(t, l)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	write(t, etc, "config.yaml", liveConfig, 0)
	file := filepath.Join(etc, "config.yaml")
	before := nodeState(t, a)
	for _, mode := range []string{"nftables", "iptables"} {
		out, errs, code := a.run("check", "--config", file, "--manifests", dir, "--node", "node1", "--mode", mode)
		if code != 0 || !strings.Contains(out, "READY: there is nothing to do") || !strings.Contains(out, mode+" mode: it works") {
			t.Errorf("%s: exit code %d\n%s%s", mode, code, out, errs)
		}
	}
	if after := nodeState(t, a); after != before {
		t.Errorf("the node is no longer as before:\n%s\nbefore:\n%s", after, before)
	}

	rules := exec.CommandContext(t.Context(), "sh", "-c", "iptables-nft -P FORWARD DROP; nft add table inet firewalld; iptables-nft -t nat -N KUBE-SERVICES; "+
		"nft add table inet fw; nft add chain inet fw forward '{ type filter hook forward priority 0; policy drop; }'; echo 0 > /proc/sys/net/ipv4/ip_forward")
	if err := a.node.Do(func() error { return rules.Run() }); err != nil {
		t.Fatal(err)
	}
	write(t, etc, "config.yaml", liveConfig+"bogus: 3\n", 0)
	write(t, dir, "bad.yaml", strings.Replace(serviceWith("  clusterIP: 10.96.0.2\n  ports: [{port: 80}]\n"), "kind: Service", "kind: Sevrice", 1), 0)
	before = nodeState(t, a)
	out, errs, code := a.run("check", "--config", file, "--manifests", dir, "--node", "node1", "--json")
	if after := nodeState(t, a); after != before {
		t.Errorf("the node is no longer as before:\n%s\nbefore:\n%s", after, before)
	}
	report := &check.Report{}
	if err := json.Unmarshal([]byte(out), report); err != nil || code != 1 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, errs)
	}
	for _, want := range []struct {
		level check.Level
		text  string
	}{
		{check.Todo, "policy is DROP"}, {check.Todo, "nft table inet fw, chain forward: its policy is drop"},
		{check.Todo, "net.ipv4.ip_forward: it is 0"}, {check.Todo, "bogus"}, {check.Todo, "Sevrice"},
		{check.Note, "firewalld"}, {check.Note, "rules of iptables mode"},
	} {
		if !slices.ContainsFunc(report.Findings, func(f check.Finding) bool {
			return f.Level == want.level && strings.Contains(f.Subject+" "+f.Text, want.text)
		}) {
			t.Errorf("there is no %s about %q in\n%s", want.level, want.text, out)
		}
	}
	if _, errs, code := a.run("check", "--manifests", filepath.Join(dir, "missing")); code != 2 || !strings.Contains(errs, os.ErrNotExist.Error()) && !strings.Contains(errs, "no such file") {
		t.Errorf("a missing directory: exit code %d, %s", code, errs)
	}
}

// On a kubeadm node, with the files of docs/migrate.md: the kubeconfig that they name is that
// of a pod, so another one is given, and an empty mode means what it will mean to the proxy.
func TestCheckWithTheFilesOfKubeadm(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, _ := newAsker(t, l)
	config, err := filepath.Abs("../../deploy/testdata/kubeadm-config.conf")
	if err != nil {
		t.Fatal(err)
	}
	api := cluster(t, "10.96.0.1")
	defer api.Close()
	listener := listenOn(t, a.node, "127.0.0.1:0")
	api.Serve(listener)
	server, etc := "http://"+listener.Addr().String(), t.TempDir()
	write(t, etc, "admin.conf", `{apiVersion: v1, kind: Config, current-context: lab,
  contexts: [{name: lab, context: {cluster: lab, user: lab}}],
  clusters: [{name: lab, cluster: {server: "`+server+`"}}], users: [{name: lab, user: {}}]}`, 0)
	admin := filepath.Join(etc, "admin.conf")

	if _, errs, code := a.run("check", "--config", config, "--node", "node1"); code != 2 ||
		!strings.Contains(errs, "/var/lib/kube-proxy/kubeconfig.conf") || !strings.Contains(errs, "set --kubeconfig to a file that works here") {
		t.Errorf("without a kubeconfig, exit code %d, %s", code, errs)
	}
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	for name, args := range map[string][]string{
		"kubeconfig": {"--kubeconfig", admin}, "master": {"--master", server}, "manifests": {"--manifests", dir},
	} {
		out, errs, code := a.run(append([]string{"check", "--config", config, "--node", "node1"}, args...)...)
		if code != 0 || errs != "" {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
		for _, want := range []string{
			"Switching node node1 to Sluice in iptables mode, with 1 Service\nREADY", "FINE  iptables mode: it works",
			"NOTE  mode: no mode is set, which means iptables where it is installed, as here", "FINE  Services: all of them would be served\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, out)
			}
		}
	}

	api.SetFault(fakeapi.Faults["hangs"])
	timer := time.AfterFunc(5*time.Second, func() { api.SetFault(nil); api.Disconnect() })
	defer timer.Stop()
	out, errs, code := a.run("check", "--config", config, "--node", "node1", "--kubeconfig", admin)
	if code != 0 || !strings.HasPrefix(errs, "Waiting for the API server "+server+", for 1m0s at most: it has not answered yet\n") {
		t.Errorf("while the API server hangs: exit code %d\n%s%s", code, out, errs)
	}
}

// What status would warn of is to do first.
func TestCheckWarnsAsStatusDoes(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, _ := newAsker(t, l)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	write(t, dir, "six.yaml", strings.Replace(serviceWith("  clusterIP: fd00:10:96::6\n  ports: [{port: 80}]\n"), "name: bad", "name: six", 1), 0)
	write(t, etc, "config.yaml", strings.Replace(liveConfig, ",fd00:10:244::/48", "", 1), 0)
	out, errs, code := a.run("check", "--config", filepath.Join(etc, "config.yaml"), "--manifests", dir, "--node", "node1")
	if code != 1 || !strings.Contains(out, "TODO  Cluster CIDR: clusterCIDR: it has no IPv6 range, but Service default/six has an IPv6 address") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
