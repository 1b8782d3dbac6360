package relay

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/testkit"
)

// Whatever some clients and Services take, others find something, and whatever is taken is given
// back.
func TestBudgetIsShared(t *testing.T) {
	const files = 1000
	b := NewBudget(files)
	greedy, modest := NewBalancer(clocktesting.NewFakePassiveClock(time.Now()), "greedy"), NewBalancer(clocktesting.NewFakePassiveClock(time.Now()), "modest")
	var taken []share
	takeAll := func(next func(i int) share) (n int, e excess) {
		for e == nobody {
			s := next(len(taken))
			if e = b.take(s); e == nobody {
				taken = append(taken, s)
				n += s.files
			}
		}
		return n, e
	}
	one := testkit.Loopback(1)
	// One client, by flows of UDP to many Services.
	if n, e := takeAll(func(int) share {
		return share{one, NewBalancer(nil, ""), filesOfFlow}
	}); n != files*3/4 || e != theClient {
		t.Errorf("a client has %d of %d files, and then %d has too many", n, files, e)
	}
	// Many clients, by connections to one Service.
	client := netip.MustParseAddr("10.0.0.0")
	n, e := takeAll(func(int) share {
		client = client.Next()
		return share{client, greedy, filesOfConnection}
	})
	if left := files - files*3/4; n < left/2 || n > left*3/4 || e != theService {
		t.Errorf("a Service has %d of the %d files that were left, and then %d has too many", n, left, e)
	}
	if e := b.take(share{one, modest, filesOfFlow}); e != theClient {
		t.Errorf("a client has more, although others have less left: %d", e)
	}
	for range 5 {
		client = client.Next()
		if s := (share{client, modest, filesOfConnection}); b.take(s) != nobody {
			t.Error("there is nothing left for others")
		} else {
			taken = append(taken, s)
		}
	}
	for _, s := range taken {
		b.give(s)
	}
	if b.used != 0 || b.connections != 0 || len(b.clients)+len(b.services) != 0 {
		t.Errorf("%d files and %d connections are not given back", b.used, b.connections)
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
