package lab_test

import (
	"net/netip"
	"regexp"
	"testing"

	"sluice/test/lab"
)

// --cleanup leaves nothing behind, whatever the mode of the proxy and the other
// flags.
func TestCleanupRemovesTheRulesOfEveryMode(t *testing.T) { inEachMode(t, testCleanup) }

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
