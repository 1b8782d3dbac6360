package relay

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/testkit"
)

// Whatever some clients and Services take, others find something, and whatever is taken is given
// back.
func TestBudgetIsShared(t *testing.T) {
	for _, files := range []int{filesOfConnection, filesOfFlow} {
		all := 1000 * files
		b := NewBudget(all)
		greedy, modest := NewBalancer(nil, "greedy"), NewBalancer(nil, "modest")
		var taken []share
		takeAll := func(next func() share) (n int, e excess) {
			for e == nobody {
				s := next()
				if e = b.take(s); e == nobody {
					taken = append(taken, s)
					n += s.files
				}
			}
			return n, e
		}
		one := testkit.Loopback(1)
		if n, e := takeAll(func() share { return share{one, NewBalancer(nil, ""), files} }); n != all*3/4 || e != theClient {
			t.Errorf("a client has %d of %d files, and then %d has too many", n, all, e)
		}
		client := netip.MustParseAddr("10.0.0.0")
		n, e := takeAll(func() share {
			client = client.Next()
			return share{client, greedy, files}
		})
		if left := all - all*3/4; n < left/2 || n > left*3/4 || e != theService {
			t.Errorf("a Service has %d of the %d files that were left, and then %d has too many", n, left, e)
		}
		if e := b.take(share{one, modest, files}); e != theClient {
			t.Errorf("a client has more, although others have less left: %d", e)
		}
		for range 5 {
			client = client.Next()
			if s := (share{client, modest, files}); b.take(s) != nobody {
				t.Error("there is nothing left for others")
			} else {
				taken = append(taken, s)
			}
		}
		for _, s := range taken {
			b.give(s)
		}
		if b.taken() != 0 || b.connections != 0 || len(b.clients)+len(b.services) != 0 {
			t.Errorf("%d files and %d connections are not given back", b.taken(), b.connections)
		}
	}
}

// taken returns how many files are in use.
func (b *Budget) taken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used[ofConnections] + b.used[ofFlows]
}

// gates returns a function that opens relays of UDP to the pool of a Service.
func gates(t *testing.T, budget *Budget, balancer *Balancer) func(number byte) *fixture {
	pool := balancer.NewPool()
	route := routeTo(answerUDP(t, "one", anyPort(2)))
	pool.Set(route, inPool(route), 0)
	return func(number byte) *fixture {
		at := netip.AddrPortFrom(testkit.Loopback(number), freePort(t, model.UDP, testkit.Loopback(number)))
		b := &fixture{Relay: &Relay{server: server{Options: Options{Address: at}}}, t: t}
		g := New(t.Context(), Options{Address: at, Protocol: model.UDP, Budget: budget, Choose: func(netip.Addr) *Pool { return pool },
			Refused: func(Refusal) { b.refused.Add(1) }})
		if err := g.Listen(true); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close(); g.Wait() })
		return b
	}
}

// A flow makes room for another one to the same Service, wherever that arrives.
func TestFlowsOfAServiceMakeRoom(t *testing.T) {
	budget := NewBudget(40)
	balancer := NewBalancer(clock.RealClock{}, "web")
	gate := gates(t, budget, balancer)
	busy, other := gate(1), gate(3)
	for range 50 {
		busy.client().ask()
	}
	if name, _ := other.client().ask(); name != "one" {
		t.Errorf("answered by %q", name)
	}
	if n := budget.taken(); n != 30 {
		t.Errorf("%d files are in use, want three quarters of 40", n)
	}
	// Connections find room, too.
	for range 5 {
		if e := budget.take(share{testkit.Loopback(9), balancer, filesOfConnection}); e != nobody {
			t.Fatalf("flows leave no room for connections: %d", e)
		}
		budget.reclaim()
	}
	if n := budget.taken(); n != 40 {
		t.Errorf("%d files are in use, want all 40", n)
	}
}

// A client that had many flows before connections of others took most of the room is served on, and
// has fewer of them the more it opens.
func TestFlowsAreExchangedWhereOthersTookTheRoom(t *testing.T) {
	const files, flows, connections = 200, 120, 15
	budget := NewBudget(files)
	gate := gates(t, budget, NewBalancer(clock.RealClock{}, "web"))(1)
	for range flows {
		gate.client().ask()
	}
	flood := NewBalancer(clock.RealClock{}, "flood")
	for range connections {
		if e := budget.take(share{testkit.Loopback(9), flood, filesOfConnection}); e != nobody {
			t.Fatalf("there is no room for connections: %d", e)
		}
	}
	for i := range 40 {
		if name, _ := gate.client().ask(); name != "one" {
			t.Fatalf("flow %d is answered by %q", i, name)
		}
	}
	if n := gate.refused.Load(); n > 0 {
		t.Errorf("%d packets were dropped", n)
	}
	const share = (files - connections*filesOfConnection) * greed / (greed + 1)
	if n := budget.taken() - connections*filesOfConnection; n > share {
		t.Errorf("the client has %d flows, want %d or fewer", n, share)
	}
}

// What a client, or a Service, does at a time is bounded, and others do not wait for it.
func TestTurns(t *testing.T) {
	b := NewBudget(100)
	busy, other := NewBalancer(nil, "busy"), NewBalancer(nil, "other")
	var ends []func()
	client := netip.MustParseAddr("10.0.0.0")
	for range dialledOfService {
		client = client.Next()
		end, err := b.turn(t.Context(), client, busy)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.turn(gone, client.Next(), busy); !errors.Is(err, context.Canceled) {
		t.Errorf("one too many does not wait: %v", err)
	}
	end, err := b.turn(t.Context(), client, other)
	if err != nil {
		t.Fatal(err)
	}
	ends = append(ends, end)
	waiting := make(chan func())
	go func() {
		end, _ := b.turn(t.Context(), client.Next(), busy)
		waiting <- end
	}()
	ends[0]()
	ends[0] = testkit.Receive(t, waiting, "a turn")
	for _, end := range ends {
		end()
	}
	for range dialledOfClient {
		if _, err := b.turn(t.Context(), client, NewBalancer(nil, "")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.turn(gone, client, other); !errors.Is(err, context.Canceled) {
		t.Errorf("one too many of a client does not wait: %v", err)
	}
	if len(b.dialledClients.of) != 1 {
		t.Errorf("%d clients are remembered, one of which has turns", len(b.dialledClients.of))
	}
}
