//go:build linux

package lab_test

import (
	"strings"
	"testing"

	"sluice/test/lab"
)

// A mode is added by a line in package mode: everything else knows it from there.
func TestToyMode(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, socket := newAsker(t, l)
	var err error
	if a.binary, err = lab.Build("sluice/test/lab/toymode"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "web.yaml", dualManifests, 0)

	commands := func(tests []toyCommand) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				stdout, stderr, code := a.run(tt.args...)
				if out := stdout + stderr; code != tt.code || !strings.Contains(out, tt.want) {
					t.Errorf("it ended with %d, want %d and %q in\n%s", code, tt.code, tt.want, out)
				}
			})
		}
	}
	commands([]toyCommand{
		{"help", []string{"--help"}, 0, "Available: nftables, iptables, ipvs, userspace, toy."},
		{"refusal", []string{"--proxy-mode=nonsense"}, 1, "set --proxy-mode to one of nftables, iptables, ipvs, userspace, toy"},
		{"render", []string{"render", "--mode=toy", "--node=node1", "--manifests=" + dir}, 2, "mode toy has no rules to print"},
		{"cleanup", []string{"--cleanup"}, 0, "No rules of any kube-proxy are left"},
	})

	p := launch(t, l, lab.ProxyOptions{Binary: a.binary, Manifests: dir, Flags: []string{"--proxy-mode=toy", socket}})
	settle(t, p, dir, 0)
	a.ready()
	flag := "--control-socket=" + a.socket
	commands([]toyCommand{
		{"status", []string{"status", flag}, 0, "toy mode"},
		{"explain", []string{"explain", "10.96.0.10:80", flag}, 0, "toy mode does not show what it holds"},
		{"diff", []string{"diff", "--manifests=" + dir, flag}, 0, "No difference."},
	})
	for path, want := range map[string]string{
		"/proxyMode": "toy", "/metrics": "kubeproxy_sync_proxy_rules_duration_seconds_count", "/": "toy",
	} {
		if page := ask(t, l, "node1", "127.0.0.1:10249", path); page.Status != 200 || !strings.Contains(page.Text, want) {
			t.Errorf("%s answers %d, without %q:\n%s", path, page.Status, want, page.Text)
		}
	}
	if health := ask(t, l, "node1", "127.0.0.1:10256", "/healthz"); health.Status != 200 {
		t.Errorf("/healthz says\n%s", health.Text)
	}
	for _, line := range failures(p) {
		t.Errorf("there is an error in the log: %s", line)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

// toyCommand is a command line, and how it ends.
type toyCommand struct {
	name string
	args []string
	code int
	want string
}
