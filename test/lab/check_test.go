package lab_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/check"
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
