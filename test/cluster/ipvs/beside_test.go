//go:build guest

package ipvs

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/test/cluster/process"
)

// trial is the name of a proxy that serves labelled Services only.
const trial = "trial"

// Ours serves a labelled Service beside upstream's kube-proxy in ipvs mode. Either is killed and started, and
// the label comes and goes: no connection is lost, and neither touches what the other wrote.
func TestBesideUpstream(t *testing.T) {
	n := newNode(t)
	theirs := web("pod1", "remote1")
	own := service{name: "own", proxy: trial, nodePort: nodePort + 1, pods: []string{"pod1", "remote1"},
		clusterIPs:      []netip.Addr{netip.MustParseAddr("10.96.0.11"), netip.MustParseAddr("fd00:10:96::11")},
		loadBalancerIPs: []netip.Addr{netip.MustParseAddr("198.18.0.21"), netip.MustParseAddr("2001:db8:18::21")}}
	n.publishAll(theirs, own)
	n.start(upstreamBinary, "ipvs")
	n.expectAnswersOf(theirs)
	var named *process.Process
	start := func() {
		n.Helper()
		named = n.startBeside(ownBinary, "nftables", "--service-proxy-name", trial)
	}
	n.untouched(ofUpstream, func() {
		start()
		n.expectAnswersOf(own)
	})
	stop := n.traffic(own)
	held := n.hold()

	n.untouched(ofUpstream, func() {
		for _, end := range []struct {
			proxy func() error
			other string // an endpoint for a while
		}{{named.Kill, "pod2"}, {func() error { return named.Stop() }, "remote2"}} {
			if err := end.proxy(); err != nil {
				t.Fatal(err)
			}
			start()
			own.pods = []string{"pod1", "remote1", end.other}
			n.publishAll(theirs, own)
			n.expectAnswersOf(own)
			own.pods = []string{"pod1", "remote1"}
			n.publishAll(theirs, own)
			addrs := n.host(end.other).Addrs
			n.expectIn(ofTrial, false, addrs[:]...)
		}
	})
	n.untouched(ofTrial, func() {
		if err := n.proxy.Kill(); err != nil {
			t.Fatal(err)
		}
		n.start(upstreamBinary, "ipvs")
		theirs.pods = []string{"pod1", "pod2", "remote1"}
		n.publishAll(theirs, own)
		n.expectAnswersOf(theirs)
	})
	held.expectAlive()

	own.proxy = ""
	n.publishAll(theirs, own)
	n.expectIn(ofUpstream, true, own.clusterIPs...)
	n.expectIn(ofTrial, false, own.clusterIPs...)
	own.proxy = trial
	n.publishAll(theirs, own)
	n.expectIn(ofTrial, true, own.clusterIPs...)
	n.expectIn(ofUpstream, false, own.clusterIPs...)
	n.expectAnswersOf(own)
	held.expectAlive()
	stop()

	n.untouched(ofUpstream, func() {
		if err := named.Stop(); err != nil {
			t.Fatal(err)
		}
		n.run(fmt.Sprintf("./%s --service-proxy-name %s --cleanup-own", ownBinary, trial))
	})
	if left := n.run("nft list tables | grep sluice || true"); left != "" {
		t.Errorf("--cleanup-own left\n%s", left)
	}
	n.expectAnswersOf(theirs)
}

// The commands that list what a proxy wrote.
const (
	ofUpstream = "ipvsadm -Sn; ipset save; iptables-save; ip6tables-save; ip -o address show dev kube-ipvs0 2>/dev/null || true"
	ofTrial    = "for f in ip ip6; do nft list table $f sluice." + trial + " 2>/dev/null || true; done"
)

// changing is what changes while packets flow, and where nothing is served anew.
var changing = regexp.MustCompile(`counter packets \d+ bytes \d+|\[\d+:\d+\]|(?m:^#.*$)|timeout \d+`)

// untouched checks that rules have the same lines after something as before.
func (n *node) untouched(rules string, during func()) {
	n.Helper()
	now := func() string {
		text := changing.ReplaceAllString(n.run(rules), "")
		return strings.Join(slices.Sorted(strings.Lines(text)), "")
	}
	before := now()
	if !strings.Contains(before, "10.96.") {
		n.Fatalf("there are no rules:\n%s", before)
	}
	during()
	if after := now(); after != before {
		n.Errorf("rules were changed from\n%s\nto\n%s", before, after)
	}
}

// expectIn waits until addresses are among rules, or are not.
func (n *node) expectIn(rules string, want bool, addresses ...netip.Addr) {
	n.Helper()
	n.eventually("rules", func() error {
		text := n.run(rules)
		for _, ip := range addresses {
			if regexp.MustCompile(`\b`+regexp.QuoteMeta(ip.String())+`\b`).MatchString(text) != want {
				return fmt.Errorf("%s is there: %v, in\n%s", ip, !want, text)
			}
		}
		return nil
	})
}
