//go:build linux

package lab_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/answer/diff"
	"sluice/test/lab"
)

const nodeManifest = `
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {addresses: [{type: InternalIP, address: 192.0.2.10}]}
`

// oldService is removed, and newService is added.
const (
	oldService = "apiVersion: v1\nkind: Service\nmetadata: {name: old}\nspec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}\n"
	newService = "apiVersion: v1\nkind: Service\nmetadata: {name: new}\nspec: {clusterIP: 10.96.0.3, sessionAffinity: ClientIP, ports: [{name: web, port: 80}]}\n"
)

// ruleset returns the node's ruleset, without counters and the like.
func ruleset(t *testing.T, l *lab.Lab) string {
	t.Helper()
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.Run(t.Context(), lab.Command{Args: []string{"nft", "list", "ruleset"}})
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`counter packets \d+ bytes \d+`).ReplaceAllString(out, "counter packets 0 bytes 0")
}

// The preview of a directory matches what happens when it is applied.
func TestDiffOfADirectory(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir, proposed := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests+"---"+nodeManifest, 0)
	write(t, dir, "other.yaml", oldService, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, "--cluster-cidr=10.244.0.0/16"}})
	settle(t, p, dir, 0)
	a.ready()
	if out, errs, code := a.ask("diff", "--manifests", dir); code != 0 || out != "No difference.\n" {
		t.Errorf("the same directory: exit code %d, %s%s", code, out, errs)
	}
	added := t.TempDir()
	write(t, added, "new.yaml", newService, 0)
	if out, errs, code := a.ask("diff", "--add", "--manifests", added); code != 1 || !strings.HasPrefix(out, "Frontends: 1 added, 0 removed, 0 changed\n") {
		t.Errorf("one Service more: exit code %d, %s%s", code, out, errs)
	}

	write(t, proposed, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", "10.244.1.2")+"---"+nodeManifest, 0)
	write(t, proposed, "other.yaml", newService, 0)
	before := ruleset(t, l)
	out, errs, code := a.ask("diff", "--manifests", proposed)
	want := `Frontends: 1 added, 1 removed, 1 changed
~ default/good: ClusterIP 10.96.0.1:80/TCP
    endpoints: added: 10.244.1.2:8080 (on this node); removed: 10.244.1.1:8080 (on this node)
+ default/new port web: ClusterIP 10.96.0.3:80/TCP
    connections: rejected: the Service has no endpoint that can be used
    masquerade: all but connections from pods
    session affinity: 3h0m0s
- default/old: ClusterIP 10.96.0.2:80/TCP
`
	if diff := cmp.Diff(want, out); code != 1 || diff != "" {
		t.Errorf("exit code %d, %s (-want +got):\n%s", code, errs, diff)
	}
	if after := ruleset(t, l); after != before {
		t.Errorf("to ask changed the rules:\n%s", cmp.Diff(before, after))
	}
	var report diff.Report
	if out, _, code := a.ask("diff", "--json", "--manifests", proposed); code != 1 || json.Unmarshal([]byte(out), &report) != nil || report.Added != 1 {
		t.Errorf("as JSON: exit code %d, %s", code, out)
	}
	offline, errs, code := a.ask("diff", "--manifests", proposed, "--against", dir, "--node", "node1")
	if code != 1 || !strings.Contains(offline, "Frontends: 1 added, 1 removed, 1 changed") {
		t.Errorf("without the proxy: exit code %d, %s%s", code, offline, errs)
	}

	mark := p.Log().Len()
	for _, name := range []string{"good.yaml", "other.yaml"} {
		text, err := os.ReadFile(filepath.Join(proposed, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, string(text), 0)
	}
	settle(t, p, dir, mark)
	eventually(t, func() bool {
		out, _, code := a.ask("diff", "--manifests", proposed)
		return code == 0 && out == "No difference.\n"
	})
}

func TestDiffOfAConfiguration(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir, files := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	settle(t, p, dir, 0)
	a.ready()
	const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	for _, test := range []struct {
		name, in string
		want     []string
		code     int
	}{
		{"nothing", head, []string{"No difference."}, 0},
		{"masquerade", head + "nftables: {masqueradeAll: true}\n", []string{
			"~ default/good: ClusterIP 10.96.0.1:80/TCP\n    masquerade: all connections, was no connection\n",
			"Configuration\n~ nftables.masqueradeAll: true, was false\n"}, 1},
		{"mode", head + "mode: iptables\n", []string{
			"~ mode: \"iptables\", was \"nftables\"; requires a restart: ",
			"~ nodePortAddresses: [], was [\"primary\"]; requires a restart: it follows from mode\n",
			"~ IPv4 node ports answer on: every local address, was chosen addresses; requires a restart: it follows from mode\n"}, 1},
		{"what only another mode takes", head + "mode: iptables\noomScoreAdj: 5\nnftables: {syncPeriod: -1s}\n", []string{
			"~ mode: \"iptables\", was \"nftables\"; requires a restart: ",
			"~ IPv4 node ports answer on: every local address, was chosen addresses; requires a restart: nothing of the file can take effect before: "}, 1},
		{"pods", head + "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}\n", []string{
			"IPv4 pods are recognised by: interfaces named veth*, was nothing"}, 1},
		{"wrong", head + "iptables: {masqueradeBit: 77}\n", []string{"Error: ", "77 is not a bit of the packet mark"}, 2},
		{"no configuration", "x: \x1b[2J", []string{"Error: "}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			write(t, files, "config.yaml", test.in, 0)
			out, errs, code := a.ask("diff", "--config", filepath.Join(files, "config.yaml"))
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("%q is not in:\n%s%s", want, out, errs)
				}
			}
			if strings.Contains(out+errs, "\x1b") {
				t.Errorf("a terminal is controlled by %q", out+errs)
			}
		})
	}
}

// elements and rules of a listing, in any order.
func linesOf(listing string) []string {
	var lines []string
	for line := range strings.Lines(listing) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "elements = { ")
		lines = append(lines, strings.TrimSuffix(strings.TrimSuffix(line, ","), " }"))
	}
	slices.Sort(lines)
	return lines
}

// The rules can be printed without privileges, and are those that the proxy makes.
// Problems of a manifest are reported too.
func TestRenderNeedsNoPrivileges(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	asNobody, manifests := unprivileged(t)
	write(t, manifests, "node.yaml", nodeManifest, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: manifests, Flags: []string{"--cluster-cidr=10.244.0.0/16"}})
	settle(t, p, manifests, 0)
	render := func(flags ...string) (stdout, stderr string, code int) {
		cmd := exec.CommandContext(t.Context(), asNobody("-all"), append([]string{"render", "--manifests", manifests, "--cluster-cidr=10.244.0.0/16"}, flags...)...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run() // the exit code is checked
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	text, errs, code := render("--node", "node1")
	if code != 0 || errs != "" {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if diff := cmp.Diff(linesOf(ruleset(t, l)), linesOf(text)); diff != "" {
		t.Errorf("what is programmed (-) is not what is rendered (+):\n%s", diff)
	}
	if text, errs, code := render("--node", "node1", "--mode", "iptables", "--family", "ipv4"); code != 0 || errs != "" || !strings.Contains(text, "--to-destination 10.244.1.1:8080") {
		t.Errorf("iptables: exit code %d, %s%s", code, errs, text)
	}
	if _, errs, code := render("--node", "elsewhere"); code != 0 || !strings.Contains(errs, `no Node named "elsewhere"`) {
		t.Errorf("without a Node: exit code %d, %s", code, errs)
	}
	write(t, manifests, "bad.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: \"b\\e[2J\"}\nspec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}\n", 0)
	again, errs, code := render("--node", "node1")
	if code != 1 || again != text || !strings.Contains(errs, "Problem: bad.yaml: document 1") || strings.Contains(errs, "\x1b") {
		t.Errorf("with a bad document: exit code %d, %q", code, errs)
	}
	if out, errs, code := render("--mode", "ebpf"); code != 2 || out != "" || !strings.Contains(errs, "is not available") {
		t.Errorf("with a wrong mode: exit code %d, %s%s", code, errs, out)
	}
}

// endless is a request body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'A'
	}
	return len(p), nil
}

// A request that is too large is refused with the limit, with or without a
// Content-Length, and the proxy keeps answering.
func TestTooLargeDiffIsRefused(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	settle(t, p, dir, 0)
	a.ready()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", a.socket)
	}}}
	defer client.CloseIdleConnections()
	for name, length := range map[string]int64{"with its length": 1 << 30, "without": -1} {
		t.Run(name, func(t *testing.T) {
			body := io.MultiReader(strings.NewReader(`{"config":"`), endless{})
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://kube-proxy/v1/diff", body)
			if err != nil {
				t.Fatal(err)
			}
			request.ContentLength = length
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(text), "/v1/diff takes 90527060 bytes at the most") {
				t.Errorf("it answers %s, %s, %v", response.Status, text, err)
			}
		})
	}
	if out, errs, code := a.ask("diff", "--manifests", dir); code != 0 {
		t.Errorf("a question of its size ends with %d: %s%s", code, out, errs)
	}
}
