//go:build linux

package lab_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// A network that drops what a node sends with other addresses than its own is found out before packets are handed to
// that node: its clients are served the ordinary way, and status says why. So are those of a node that does not
// answer on the link, as soon as the kernel knows.
func TestDirectReturnAvoidsNodes(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t, "four nodes find each other first")
	q := newQuartet(t, "--direct-return=auto")
	t.Cleanup(q.show)
	q.askAt("n1")
	// A source guard at n3's port of the switch.
	q.run("switch", `nft 'table netdev guard {
	chain in { type filter hook ingress device "n3" priority 0;
		ip saddr != { 192.0.2.13, 10.244.3.1 } drop
		ip6 saddr != { 2001:db8::13, fd00:10:244:3::1, fe80::/10 } drop
	}
}'`)
	states := map[string]endpointState{"n2": isReady, "n3": isReady, "n4": isReady}
	q.startAll(directManifests(directAnnotation, states))
	q.askers["n1"].ready()
	q.awaitStatus("not n3 (IPv4): what it sends with an address that is not its own does not arrive",
		"not n3 (IPv6): what it sends", "switch off the source check of the cloud", "handed to 2 of 3 other nodes")
	testkit.Eventually(t, func() error {
		direct, masqueraded, none := q.ways(q.toVIPs(20))
		if none > 0 || direct == 0 || masqueraded == 0 {
			return fmt.Errorf("%d answered directly, %d masqueraded, %d not at all", direct, masqueraded, none)
		}
		return nil
	})
	q.run("switch", "nft delete table netdev guard")
	if testkit.Full() { // a minute later
		q.awaitDirect()
	}
	q.powerOff("n4")
	for _, addr := range q.host("n4").Addrs {
		q.run("n1", "ip neigh replace "+addr.String()+" dev eth0 nud failed")
	}
	q.awaitStatus("not n4 (IPv4): it does not answer on the link", "not n4 (IPv6): it does not answer on the link")
	testkit.Eventually(t, func() error {
		direct, masqueraded, _ := q.ways(q.toVIPs(20))
		if direct == 0 || masqueraded == 0 {
			return fmt.Errorf("%d answered directly, %d masqueraded", direct, masqueraded)
		}
		return nil
	})
}

// powerOff has a node lose its power.
func (q *quartet) powerOff(node string) {
	q.t.Helper()
	if err := errors.Join(q.proxies[node].Kill(), q.l.Plug(node, false)); err != nil {
		q.t.Fatal(err)
	}
}

// awaitStatus waits until status of n1 says something.
func (q *quartet) awaitStatus(wants ...string) {
	q.t.Helper()
	testkit.Eventually(q.t, func() error {
		out, _, _ := q.askers["n1"].ask("status")
		for _, want := range wants {
			if !strings.Contains(out, want) {
				return fmt.Errorf("%q is not in\n%s", want, out)
			}
		}
		return nil
	})
}

// toVIPs are TCP connections to the load balancer's addresses.
func (q *quartet) toVIPs(each int) []lab.Flow {
	return slices.DeleteFunc(q.flows(each), func(f lab.Flow) bool { return f.Protocol != lab.TCP })
}

// ways counts how attempts are answered.
func (q *quartet) ways(flows []lab.Flow) (direct, masqueraded, none int) {
	for i := range flows {
		flows[i].Timeout = time.Second // some are to fail
	}
	for _, o := range q.l.Probe(q.t.Context(), flows) {
		switch {
		case o.Kind != lab.Answered:
			none++
		case slices.Contains(directClient, o.Source.Addr()):
			direct++
		default:
			masqueraded++
		}
	}
	return direct, masqueraded, none
}

// Source ranges are enforced where a Service asks for direct return: it stays ordinary, and says so.
func (q *quartet) testSourceRanges(states map[string]endpointState) {
	flows := q.flows(2)
	for _, tt := range []struct {
		ranges  string
		refused bool
	}{
		{`"203.0.113.0/24", "192.0.2.0/24", "2001:db8::/64"`, true}, // nodes may, the client may not
		{`"198.51.100.0/24", "2001:db8:1::/64"`, false},
	} {
		q.updateAll(rangedManifests(directAnnotation, tt.ranges, states))
		testkit.Eventually(q.t, func() error {
			direct, masqueraded, none := q.ways(flows)
			if direct > 0 || tt.refused && masqueraded > 0 || !tt.refused && none > 0 {
				return fmt.Errorf("with %s %d are answered directly, %d masqueraded, %d not", tt.ranges, direct, masqueraded, none)
			}
			return nil
		})
	}
}

// The node that clients ask is lost while connections are open, and the router sends them to another one: none breaks,
// since all nodes hand them to the same ones.
func TestDirectReturnEntryLost(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t, "four nodes find each other first")
	states := map[string]endpointState{"n2": isReady, "n3": isReady, "n4": isReady}
	q := startQuartet(t, directManifests(directAnnotation, states), "--direct-return=auto")
	t.Cleanup(q.show)
	q.awaitDirect()
	q.vipsOnly = true
	stop := q.talk(testkit.Extent(20, 40, 200), 0)
	q.powerOff("n1")
	time.Sleep(200 * time.Millisecond) // the router takes its time
	for _, next := range []string{"n3", "n2"} {
		if err := q.l.EnterThrough(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	q.testSourceRanges(states)
}
