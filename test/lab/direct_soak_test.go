//go:build linux

package lab_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// Connections survive that nodes begin and stop to get new ones, that proxies are killed and started again, and
// that the nodes learn of all that one after the other, in any order. They end with the node that
// answers them, and no others do. The node that clients ask can be another one at any time.
func TestDirectReturnSoak(t *testing.T) {
	t.Parallel()
	testkit.OnlyFull(t, "nodes have a second and a half to learn of each change, which is too little on a busy machine")
	const (
		tcp, udp, changes = 400, 200, 30
		pause             = 1500 * time.Millisecond
	)
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	states := map[string]endpointState{"n1": isReady, "n2": isReady, "n3": isReady, "n4": isReady}
	q := startQuartet(t, directManifests(directAnnotation, states), "--direct-return=auto")
	t.Cleanup(q.show)
	q.awaitDirect()
	stop := q.talk(tcp, udp)
	for i := range changes {
		said := func(what, node string) { t.Logf("%s %d: %s %s", time.Now().Format(time.TimeOnly), i, what, node) }
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
			time.Sleep(time.Duration(random.Int64N(int64(min(pause/2, 300*time.Millisecond)))))
		}
		time.Sleep(pause)
	}
	if err := q.l.EnterThrough("n3"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(pause)
	if err := q.l.EnterThrough("n1"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(pause)
	if err := stop(); err != nil {
		t.Error(err)
	}
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
