//go:build linux

package lab_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// Direct return is switched on and off under traffic, for the Service and for nodes. Connections survive that, and
// end as they should, except those to nodes that packets are no longer handed to.
func TestDirectReturnSwitched(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t, "four nodes find each other first")
	ready := map[string]endpointState{"n1": isReady, "n2": isReady, "n3": isReady, "n4": isReady}
	q := startQuartet(t, directManifests("", ready), "--direct-return=auto")
	t.Cleanup(q.show)
	q.awaitOrdinary()
	n := testkit.Extent(12, 24, 200)

	stop := q.talk(n, 0)
	q.updateAll(directManifests(directAnnotation, ready))
	q.awaitDirect()
	if err := stop(); err != nil {
		t.Errorf("switched on for the Service: %v", err)
	}
	// The node that served them as ordinary ones learns of their end too.
	testkit.Eventually(t, func() error {
		open := q.run("n1", "conntrack -L -p tcp 2>/dev/null; conntrack -L -f ipv6 -p tcp 2>/dev/null")
		for _, line := range strings.Split(open, "\n") {
			if strings.Contains(line, "ESTABLISHED") && !strings.Contains(line, "dport=9 ") {
				return fmt.Errorf("still open is %s", line)
			}
		}
		return nil
	})

	if testkit.Full() {
		q.testNodesSwitched(n)
	}

	stop = q.talk(n, 0)
	q.updateAll(directManifests("", ready))
	q.awaitOrdinary()
	if err := stop("p2", "p3", "p4"); err != nil {
		t.Errorf("switched off for the Service: %v", err)
	}
}

// testNodesSwitched switches it off and on on a node that packets are handed to, and on the one that clients ask.
func (q *quartet) testNodesSwitched(connections int) {
	stop := q.talk(connections, connections/2)
	q.restart("n3")
	q.awaitNothingLeft("n3")
	if err := errors.Join(q.allAnswered(q.flows(6, lab.Nodes...)), stop()); err != nil {
		q.t.Errorf("switched off on a node that packets are handed to: %v", err)
	}
	q.restart("n3", "--direct-return=auto")
	q.awaitDirect()
	stop = q.talk(connections, 0)
	q.restart("n1")
	q.awaitNothingLeft("n1")
	q.awaitMasqueraded("n1")
	if err := stop("p2", "p3", "p4"); err != nil {
		q.t.Errorf("switched off on the node that clients ask: %v", err)
	}
	stop = q.talk(connections, 0)
	q.restart("n1", "--direct-return=auto")
	q.awaitDirect()
	if err := stop(); err != nil {
		q.t.Errorf("switched on on the node that clients ask: %v", err)
	}
}

// updateAll gives all nodes the same objects.
func (q *quartet) updateAll(manifests string) {
	for _, n := range lab.Nodes {
		q.update(n, manifests)
	}
}

// restart starts the proxy of a node anew, with other flags.
func (q *quartet) restart(node string, flags ...string) {
	q.t.Helper()
	if err := q.proxies[node].Stop(); err != nil {
		q.t.Error(err)
	}
	before := q.flags
	q.flags = flags
	q.start(node)
	q.flags = before
}

// allAnswered reports whether all attempts are answered.
func (q *quartet) allAnswered(flows []lab.Flow) error {
	for i, o := range q.l.Probe(q.t.Context(), flows) {
		if o.Kind != lab.Answered {
			return fmt.Errorf("%v: %v", flows[i], o)
		}
	}
	return nil
}

// awaitOrdinary waits until clients are masqueraded at all nodes, and awaitMasqueraded until they are at some, of which
// n1 is one.
func (q *quartet) awaitOrdinary() { q.t.Helper(); q.awaitMasqueraded(lab.Nodes...) }

func (q *quartet) awaitMasqueraded(nodes ...string) {
	q.t.Helper()
	testkit.Eventually(q.t, func() error {
		flows := q.flows(4, nodes...)
		for i, o := range q.l.Probe(q.t.Context(), flows) {
			if o.Kind != lab.Answered || slices.Contains(directClient, o.Source.Addr()) {
				return fmt.Errorf("%v: %v", flows[i], o)
			}
		}
		return nil
	})
}
