//go:build linux

package lab_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// Connections survive that nodes begin and stop to get new ones, that proxies are killed and started again, and
// that the nodes learn of all that one after the other, in any order. They end with the node that
// answers them, and no others do. The node that clients ask can be another one at any time.
func TestDirectReturnSoak(t *testing.T) {
	t.Parallel()
	testkit.OnlyFull(t, "hundreds of connections talk through thirty changes")
	const tcp, udp, changes = 400, 200, 30
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	states := map[string]endpointState{"n1": isReady, "n2": isReady, "n3": isReady, "n4": isReady}
	q := startQuartet(t, directManifests(directAnnotation, states), "--direct-return=auto")
	t.Cleanup(q.show)
	q.awaitDirect()
	stop := q.talk(tcp, udp)
	for i := range changes {
		said := func(what, node string) { t.Logf("%s %d: %s %s", time.Now().Format(time.StampMilli), i, what, node) }
		switch n := lab.Nodes[random.IntN(len(lab.Nodes))]; {
		case i%3 == 2: // a new process on a node
			if err := q.proxies[n].Kill(); err != nil {
				t.Fatal(err)
			}
			said("killed on", n)
			q.start(n)
		case i%4 == 3 && states[n] == isReady: // another weight
			states[n] = isLight
			said("less for", n)
		case states[n] != isDraining && howManyReady(states) > 1:
			states[n] = isDraining
			said("draining is", n)
		default:
			states[n] = isReady
			said("ready is", n)
		}
		order := random.Perm(len(lab.Nodes))
		if i == 0 { // the node that is asked first
			order = []int{0, 1, 2, 3}
		}
		for _, at := range order {
			q.update(lab.Nodes[at], directManifests(directAnnotation, states))
			time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
		}
		q.awaitSettled(states)
	}
	for _, entry := range []string{"n3", "n1"} {
		if err := q.l.EnterThrough(entry); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// awaitSettled waits until the tables of all nodes are those of the endpoints.
func (q *quartet) awaitSettled(states map[string]endpointState) {
	q.t.Helper()
	want := slotsByAddress(q, states)
	for _, n := range lab.Nodes {
		testkit.Eventually(q.t, func() error { return q.settled(n, want) })
	}
}

// slotsByAddress is how many slots each node has, by its address.
func slotsByAddress(q *quartet, states map[string]endpointState) map[netip.Addr]int {
	shares := map[endpointState]uint32{isReady: 100, isLight: 20}
	d := &plan.Direct{}
	for _, n := range lab.Nodes {
		if share := shares[states[n]]; share > 0 {
			d.Nodes = append(d.Nodes, plan.NodeShare{Name: n, Share: share})
		}
	}
	out := map[netip.Addr]int{}
	for _, at := range d.Slots() {
		for _, addr := range q.host(d.Nodes[at].Name).Addrs {
			out[addr]++
		}
	}
	return out
}

// settled reports whether the tables of a node have so many slots for each.
func (q *quartet) settled(node string, want map[netip.Addr]int) error {
	var conn *nft.Conn
	err := q.host(node).Do(func() (err error) { conn, err = nft.Dial(0, nft.SendBuffer); return err })
	if err != nil {
		return err
	}
	defer conn.Close()
	for f, own := range q.host(node).Addrs {
		table := nft.Table{Family: []nft.Family{nft.IP, nft.IP6}[f], Name: "sluice-direct"}
		sets, err := conn.Sets(q.t.Context(), table)
		if err != nil {
			return err
		}
		for _, s := range sets {
			got := map[netip.Addr]int{}
			err := conn.Elements(q.t.Context(), table, s.Name, func(e *nft.Element) error {
				addr, isNode := netip.AddrFromSlice(e.Data)
				if !isNode {
					addr = own
				}
				got[addr]++
				return nil
			})
			if err != nil {
				return err
			}
			if err := sameSlots(node, s.Name, own, got, want); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameSlots compares a set of the slots of other nodes, or of the node's own.
func sameSlots(node, set string, own netip.Addr, got, want map[netip.Addr]int) error {
	for addr, n := range want {
		ofSet := strings.HasPrefix(set, "own-") && addr == own || strings.HasPrefix(set, "slots-") && addr != own
		if ofSet && addr.Is4() == own.Is4() && got[addr] != n {
			return fmt.Errorf("%s has %d slots for %s in %s, not %d", node, got[addr], addr, set, n)
		}
	}
	return nil
}

func howManyReady(states map[string]endpointState) (n int) {
	for _, s := range states {
		if s == isReady || s == isLight {
			n++
		}
	}
	return n
}

// A node loses its power: its connections end, and no others, and new ones go elsewhere as soon as it is known.
func TestDirectReturnPowerOff(t *testing.T) {
	t.Parallel()
	testkit.OnlyFull(t, "the kernel takes its time to notice that a neighbour is gone")
	q := startQuartet(t, directManifests(directAnnotation, map[string]endpointState{"n2": isReady, "n3": isReady, "n4": isReady}), "--direct-return=auto")
	t.Cleanup(q.show)
	q.awaitDirect()
	stop := q.talk(60, 30)
	q.powerOff("n4")
	states := map[string]endpointState{"n2": isReady, "n3": isReady}
	time.Sleep(10 * time.Second)
	for _, n := range []string{"n1", "n2", "n3"} {
		q.update(n, directManifests(directAnnotation, states))
	}
	testkit.Eventually(t, func() error { return q.allDirect(q.flows(10, "n1", "n2", "n3")) })
	if err := stop("p4"); err != nil {
		t.Error(err)
	}
}
