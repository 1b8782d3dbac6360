//go:build linux

package lab_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/test/lab"
)

// --cleanup leaves nothing behind, whatever the mode of the proxy and the other
// flags.
func TestCleanupRemovesTheRulesOfEveryMode(t *testing.T) {
	t.Parallel()
	inEachMode(t, testCleanup)
}

func testCleanup(t *testing.T, mode string) {
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir})
	settle(t, p, dir, 0)
	answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.Run(t.Context(), lab.Command{Args: []string{binary, "--cleanup", "--proxy-mode=nonsense"}})
	if err != nil {
		t.Fatal(err)
	}
	ours := regexp.MustCompile(`(?m)^.*(table ip6? sluice|KUBE-|10\.96\.0\.1).*$`)
	for _, mode := range []string{"nftables", "iptables-legacy"} { // nftables sees those of iptables-nft
		for _, line := range ours.FindAllString(rulesOf(t, l, mode), -1) {
			if !regexp.MustCompile(`KUBE-IPTABLES-HINT`).MatchString(line) {
				t.Errorf("still there: %s", line)
			}
		}
	}
	if t.Failed() {
		t.Logf("it said:\n%s", out)
	}
}

// upstreamRules are some that upstream's iptables mode writes. To name a chain empties it.
const upstreamRules = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.77/32 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SVC-NPX46M4PTMTKRN6Y -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
COMMIT
*filter
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A FORWARD -j KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
COMMIT
`

// Upstream takes over, in each of its modes: --cleanup-own then removes what it does not
// know of, and nothing that it uses.
func TestCleanupOwnLeavesUpstream(t *testing.T) {
	t.Parallel()
	inEachMode(t, testCleanupOwn)
}

func testCleanupOwn(t *testing.T, mode string) {
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir})
	settle(t, p, dir, 0)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	run := func(input string, args ...string) string {
		t.Helper()
		out, err := node.Run(t.Context(), lab.Command{Args: args, Input: input})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	variant := "nft"
	if mode == "iptables-legacy" {
		variant = "legacy"
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		rules := upstreamRules
		if family == "ip6tables" {
			rules = strings.ReplaceAll(rules, "10.96.0.77/32", "fd00:10:96::77/128")
		}
		run(rules, family+"-"+variant+"-restore", "--noflush", "--wait=60")
	}
	run("table ip kube-proxy {\n chain services {\n counter\n }\n}\n", "nft", "-f", "-")
	list := func() (lines []string) {
		text := run("", "iptables-"+variant+"-save") + run("", "ip6tables-"+variant+"-save") + run("", "nft", "list", "ruleset")
		for line := range strings.Lines(counters.ReplaceAllString(text, "")) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines
	}
	before := list()
	if !slices.ContainsFunc(before, onlyOurs.MatchString) {
		t.Fatal("nothing of this proxy is there")
	}
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out := run("", binary, "--cleanup-own")
	after := list()
	for _, line := range after {
		if onlyOurs.MatchString(line) {
			t.Errorf("still there: %s", line)
		}
	}
	for _, want := range []string{":KUBE-SERVICES - [0:0]", "-A PREROUTING -j KUBE-SERVICES", "-A KUBE-SERVICES -d 10.96.0.77/32 -j KUBE-SVC-NPX46M4PTMTKRN6Y",
		"-A KUBE-SERVICES -d fd00:10:96::77/128 -j KUBE-SVC-NPX46M4PTMTKRN6Y", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
		"-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP", "table ip kube-proxy {"} {
		if !slices.Contains(before, want) || !slices.Contains(after, want) {
			t.Errorf("%q: before %t, after %t", want, slices.Contains(before, want), slices.Contains(after, want))
		}
	}
	if t.Failed() {
		t.Logf("it said:\n%s", out)
	}
}

var (
	// onlyOurs finds what upstream's kube-proxy has not.
	onlyOurs = regexp.MustCompile(`table ip6? sluice|KUBE-(POOL|ROUTE|ADMIT|IP|XIP|FWIP|NPIP|PORT|HCP|HPIP)-|` +
		`KUBE-(UNTRANSLATED|MARK-OFF-CLUSTER|NODEPORT-IPS|REFUSED-NODEPORTS|HAIRPIN)`)
	counters = regexp.MustCompile(`(?m)^#.*\n`)
)
