//go:build guest

package ipvs

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/cli/check"
	"sluice/test/lab"
)

// A node migrates from upstream's ipvs mode to one of ours and back. No connection
// breaks or fails, whether it was opened before, in between or after. When the
// connections that depend on upstream's IPVS have ended, nothing of it is left.
func TestFromUpstreamAndBack(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "ipvs"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t)
			n.publish("pod1", "remote1")
			n.start(upstreamBinary, "ipvs")
			n.expectAnswers("pod1", "remote1")
			n.checkBefore(mode)
			before := n.hold()
			stop := n.traffic()

			n.replace(ownBinary, mode)
			n.publish("pod1", "pod2", "remote1")
			n.expectAnswers("pod1", "pod2", "remote1")
			before.expectAlive()
			early := n.hold()
			n.expectOwnSource()
			meanwhile := n.hold()
			before.close()
			early.expectAlive()
			early.close()
			n.expectNothingOfUpstream(mode)
			meanwhile.expectAlive()

			n.replace(upstreamBinary, "ipvs")
			n.expectUpstream()
			n.cleanupOwn()
			n.publish("pod1", "remote1", "remote2")
			n.expectAnswers("pod1", "remote1", "remote2")
			meanwhile.expectAlive()
			after := n.hold()
			meanwhile.close()
			after.expectAlive()
			stop()
		})
	}
}

// The same between our own modes.
func TestBetweenModes(t *testing.T) {
	n := newNode(t)
	n.publish("pod1", "remote1")
	n.start(ownBinary, "ipvs")
	n.expectAnswers("pod1", "remote1")
	stop := n.traffic()
	all := []*held{n.hold()}
	for i, mode := range []string{"nftables", "ipvs", "iptables", "ipvs"} {
		n.replace(ownBinary, mode)
		pods := []string{"pod1", "remote1", []string{"pod2", "remote2"}[i%2]}
		n.publish(pods...)
		n.expectAnswers(pods...)
		for _, h := range all {
			h.expectAlive()
		}
		all = append(all, n.hold())
	}
	for _, h := range all {
		h.close()
	}
	stop()
	n.replace(ownBinary, "nftables")
	n.expectNothingOfUpstream("nftables")
}

// held are connections that stay open.
type held struct {
	n        *node
	sessions []*lab.Session
	by       []lab.Answer // of each session
}

// hold opens a connection on each flow.
func (n *node) hold() *held {
	n.Helper()
	h := &held{n: n}
	for _, f := range n.flows(lab.TCP) {
		s, err := n.lab.Open(f)
		if err != nil {
			n.report()
			n.Fatal(err)
		}
		h.sessions = append(h.sessions, s)
		a, err := s.Ask()
		if err != nil {
			n.report()
			n.Fatal(err)
		}
		h.by = append(h.by, a)
	}
	n.Cleanup(h.close)
	return h
}

// expectAlive fails the test if a connection broke, or got to another endpoint.
func (h *held) expectAlive() {
	h.n.Helper()
	broken := 0
	for i, s := range h.sessions {
		a, err := s.Ask()
		if err == nil && a != h.by[i] {
			err = fmt.Errorf("answered as %v, before as %v", a, h.by[i])
		}
		if err != nil {
			h.n.Error(err)
			broken++
		}
	}
	if broken > 0 {
		h.n.report()
		h.n.Fatalf("%d of %d held connections broke", broken, len(h.sessions))
	}
}

func (h *held) close() {
	for _, s := range h.sessions {
		s.Close()
	}
	h.sessions = nil
}

// traffic opens new connections to web and other Services all the time. The returned function stops that, and
// fails the test if one of them failed.
func (n *node) traffic(services ...service) (stop func()) {
	n.Helper()
	flows := n.flows(lab.TCP, lab.UDP)
	for _, s := range services {
		flows = append(flows, n.flowsTo(s, lab.TCP, lab.UDP)...)
	}
	t, err := n.lab.StartTraffic(n.Context(), flows, lab.TrafficOptions{Rate: 40})
	if err != nil {
		n.Fatal(err)
	}
	return func() {
		n.Helper()
		count := t.Stop()
		if count.Lost() > 0 || count.Opened == 0 {
			n.Errorf("traffic: %v", count)
		}
		n.Logf("traffic: %v", count)
	}
}

// expectOwnSource waits until the node connects to Services from its own addresses, and
// not from those that upstream gave it: they are about to be removed.
func (n *node) expectOwnSource() {
	n.Helper()
	n.eventually("the node's own addresses", func() error {
		for _, ip := range slices.Concat(clusterIPs, loadBalancerIPs) {
			if route := n.run(fmt.Sprintf("ip route get %v", ip)); strings.Contains(route, fmt.Sprintf("src %v ", ip)) {
				return fmt.Errorf("the route is %s", route)
			}
		}
		return nil
	})
}

// expectUpstream waits until upstream's kube-proxy has programmed its rules.
func (n *node) expectUpstream() {
	n.Helper()
	n.eventually("upstream's rules", func() error {
		addresses, sets := n.run("ip address show dev kube-ipvs0 2>/dev/null || true"), n.run("ipset list")
		for _, ip := range slices.Concat(clusterIPs, loadBalancerIPs) {
			if !strings.Contains(addresses, ip.String()) {
				return fmt.Errorf("%v is not among\n%s", ip, addresses)
			}
			if !strings.Contains(sets, ip.String()) {
				return fmt.Errorf("%v is not in a set", ip)
			}
		}
		return nil
	})
}

// checkBefore asks what to do before the switch: it recognises upstream's ipvs mode and its
// scheduler, and changes nothing.
func (n *node) checkBefore(mode string) {
	n.Helper()
	list := "ipvsadm -Sn; ipset list; iptables-save -t nat; ip6tables-save -t nat; ip address show dev kube-ipvs0"
	before := n.run(list)
	out := n.run(fmt.Sprintf("./%s check --master http://%s --kube-api-content-type application/json --node node1 --mode %s -o json || [ $? = 1 ]",
		ownBinary, apiAddress, mode))
	var report check.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		n.Fatalf("%v in\n%s", err, out)
	}
	if !slices.Equal(report.InPlace, []string{"ipvs"}) || report.Mode != mode || report.Services != 1 {
		n.Errorf("check does not see upstream's ipvs mode and the Service:\n%s", out)
	}
	if named := strings.Contains(out, "IPVS scheduler wrr"); named != (mode != "ipvs") {
		n.Errorf("check mentions the scheduler, which only ipvs mode can keep: %t\n%s", named, out)
	}
	if after := n.run(list); withoutCounts(after) != withoutCounts(before) {
		n.Errorf("check changed\n%s\nto\n%s", before, after)
	}
}

// counts are what changes while packets flow, and comments with the time.
var counts = regexp.MustCompile(`\[\d+:\d+\]|References: \d+|(?m:^#.*$)`)

func withoutCounts(list string) string { return counts.ReplaceAllString(list, "") }

// cleanupOwn removes what our kube-proxy left, and only that.
func (n *node) cleanupOwn() {
	n.Helper()
	n.run("./" + ownBinary + " --cleanup-own")
	for _, command := range []string{"nft list tables | grep sluice", "ip rule | grep 51007", "ip -6 rule | grep 51007",
		"ip route show table 51007 2>/dev/null", "ip -6 route show table 51007 2>/dev/null"} {
		if list := n.run(command + " || true"); list != "" {
			n.Errorf("--cleanup-own left\n%s", list)
		}
	}
	n.expectUpstream()
}

// expectNothingOfUpstream waits until nothing of upstream's ipvs mode is left. In ipvs
// mode there are virtual services of ours.
func (n *node) expectNothingOfUpstream(mode string) {
	n.Helper()
	n.eventually("nothing of upstream's is left", func() error {
		if list := n.run("ip address show dev kube-ipvs0 2>/dev/null || true"); strings.Contains(list, "inet") {
			return fmt.Errorf("kube-ipvs0 has addresses:\n%s", list)
		}
		if list := n.run("ipset list -n"); list != "" {
			return fmt.Errorf("there are the sets\n%s", list)
		}
		if list := n.run("iptables-save; ip6tables-save"); strings.Contains(list, "--match-set") {
			return fmt.Errorf("there are rules of ipvs mode:\n%s", list)
		}
		if list := n.run("ipvsadm -Sn"); mode != "ipvs" && list != "" {
			return fmt.Errorf("there are the virtual services\n%s", list)
		}
		return nil
	})
}
