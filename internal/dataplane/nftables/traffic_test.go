//go:build linux

package nftables

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// counted is a frontend at TCP port 443, or ports 999-1003, whose counters a test sets.
type counted struct {
	*kernel
	d   *Dataplane
	key plan.Key
}

// sees sets the packet counter of the frontend's element in a set.
func (c counted) sees(set string, packets int) {
	c.t.Helper()
	verdict := ""
	switch f := c.d.tables[0].frontends[c.key]; set {
	case services:
		verdict = f.verdict
	case outside:
		verdict = f.outside
	case filters:
		verdict = dropName
	}
	if verdict == dropName {
		verdict = " : drop"
	} else {
		verdict = " : goto " + verdict
	}
	put := func(set, port, verdict string, packets int) {
		c.nft(fmt.Sprintf("delete element ip sluice %[1]s { %[2]s . tcp . %[3]s }\n"+
			"add element ip sluice %[1]s { %[2]s . tcp . %[3]s counter packets %[4]d bytes 1%[5]s }",
			set, c.key.Addr, port, packets, verdict), "-f", "-")
	}
	switch m := rangeBlocks; {
	case !c.key.IsRange():
		put(set, "443", verdict, packets)
	case set == filters:
		put(rangeFilters, fmt.Sprint(rangeNumber(c.key.Ports())), "", packets)
	default: // packets to two blocks
		if set == outside {
			m = outsideBlocks
		}
		put(m[16], "999", verdict, packets-2)
		put(m[14], "1000", verdict, 2)
	}
}

func (c counted) want(when string, connections, noEndpoints, noLocal, source int64) {
	c.t.Helper()
	var got dataplane.Traffic
	_, err := c.d.Traffic(context.Background(), func(k plan.Key, t dataplane.Traffic) {
		if k == c.key {
			got = t
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
	want := dataplane.Traffic{Attempts: got.Attempts, Connections: connections, Refused: [3]int64{noEndpoints, noLocal, source}}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func TestTrafficSurvivesChanges(t *testing.T) {
	single := key("198.51.100.1:443", model.TCP)
	ports := plan.Key{Addr: single.Addr, Port: 999, Last: 1003, Protocol: model.TCP}
	t.Run("port", func(t *testing.T) { testTrafficSurvives(t, single, pool("10.244.0.1:8080", "10.244.0.2:8080")) })
	t.Run("range", func(t *testing.T) { testTrafficSurvives(t, ports, pool("10.244.0.1:0", "10.244.0.2:0")) })
}

func testTrafficSurvives(t *testing.T, at plan.Key, all []plan.Endpoint) {
	ctx := context.Background()
	k := newKernel(t)
	c := counted{k, k.dataplane(), at}
	change := func(route, outside plan.Route, filtered bool) {
		t.Helper()
		ok(t, c.d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{{Key: c.key, Kind: plan.LoadBalancerIP,
			Route: route, Outside: &outside, Filtered: filtered, Sources: prefixes("192.0.2.0/24")}}}))
	}
	served, nowhere := plan.Route{Endpoints: all}, plan.Route{}
	here, elsewhere := plan.Route{Endpoints: all[:1]}, plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}

	ok(t, c.d.Reconcile(ctx, &plan.Desired{Settings: settings()}))
	change(served, elsewhere, true)
	c.want("at first", 0, 0, 0, 0)
	c.sees(services, 100)
	c.sees(outside, 20)
	c.sees(filters, 5)
	c.want("some were refused", 75, 0, 20, 5)
	change(served, here, true)
	c.want("an endpoint came to this node", 75, 0, 20, 5)
	c.sees(services, 110)
	c.sees(outside, 10)
	c.want("and was used", 85, 0, 20, 5)
	change(nowhere, nowhere, true)
	c.want("all endpoints left", 85, 0, 20, 5)
	c.sees(services, 140)
	c.sees(filters, 9)
	c.want("all are refused", 85, 30, 20, 5)
	change(served, elsewhere, true)
	c.want("endpoints came back", 85, 30, 20, 5)
	c.sees(services, 142)
	c.sees(filters, 10)
	c.want("and one of two was admitted", 86, 30, 20, 6)
	change(served, elsewhere, false)
	c.want("everybody is admitted", 86, 30, 20, 6)
	ok(t, c.d.Apply(ctx, &plan.Change{Removed: []plan.Key{c.key}}))
	change(served, elsewhere, true)
	c.want("a new frontend of the same address", 0, 0, 0, 0)
	if len(c.d.carried) != 0 {
		t.Errorf("%v is kept of what is gone", c.d.carried)
	}
}

// Chains say what happens to packets, plan says why.
func TestTrafficHasTheCauseOfPlan(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	c := counted{k, k.dataplane(), key("198.51.100.1:443", model.TCP)}
	refusing := func(v plan.Verdict, why plan.Cause) *plan.Desired {
		return &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{c.key: {Key: c.key,
			Route: plan.Route{Empty: plan.Refusal{Verdict: v, Cause: why}}}}}
	}
	ok(t, c.d.Reconcile(ctx, refusing(plan.Drop, plan.NoEndpoints)))
	c.sees(services, 10)
	c.want("dropped without an endpoint", 0, 10, 0, 0)
	ok(t, c.d.Reconcile(ctx, refusing(plan.Reject, plan.NoLocalEndpoints)))
	c.want("the kernel was read again, and then written", 0, 10, 0, 0)
	c.sees(services, 13)
	c.want("rejected without a local endpoint", 0, 10, 3, 0)
}

func TestTrafficSurvivesManyChangesAtOnce(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	c := counted{k, k.dataplane(), key("198.51.100.1:443", model.TCP)}
	desired := cluster(128)
	desired.Frontends[c.key] = &plan.Frontend{Key: c.key, Route: plan.Route{Endpoints: pool("10.244.0.1:80")},
		Outside: &plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}, Filtered: true}
	ok(t, c.d.Reconcile(ctx, desired))
	c.sees(services, 10)
	c.sees(outside, 3)
	c.sees(filters, 2)
	var change plan.Change
	for _, f := range desired.Frontends {
		g := *f
		g.Route, g.Outside = plan.Route{}, nil
		change.Set = append(change.Set, &g)
	}
	ok(t, c.d.Apply(ctx, &change))
	c.want("all at once lost their endpoints", 5, 0, 3, 2)
	if good, err := c.d.Verify(ctx); err != nil || !good {
		t.Errorf("Verify says %v, %v", good, err)
	}
}

// The counters of a frontend are read one after the other. What a change between two of them
// carries over must not be added to what was read before.
func TestTrafficIsNotCountedTwice(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	d := k.dataplane()
	desired := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}}
	for _, addr := range []string{"198.51.100.1:443", "198.51.100.2:443"} {
		key := key(addr, model.TCP)
		desired.Frontends[key] = &plan.Frontend{Key: key, Route: plan.Route{Endpoints: pool("10.244.0.1:80")},
			Outside: &plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}}
	}
	ok(t, d.Reconcile(ctx, desired))
	for key := range desired.Frontends {
		c := counted{k, d, key}
		c.sees(services, 100)
		c.sees(outside, 20)
	}

	read := 0
	_, err := d.Traffic(ctx, func(one plan.Key, got dataplane.Traffic) {
		want := dataplane.Traffic{Attempts: 100, Connections: 80}
		want.Refused[plan.NoLocalEndpoints] = 20
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", one, diff)
		}
		read++
		for key, other := range desired.Frontends {
			if key != one && read == 1 {
				ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{{Key: key}}}))
				ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{other}}))
			}
		}
	})
	if err != nil || read == 0 {
		t.Errorf("%d frontends were read, %v", read, err)
	}
	for key := range desired.Frontends {
		counted{k, d, key}.want("afterwards", 80, 0, 20, 0)
	}
}

func TestTrafficAddsUpDuringChanges(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	c := counted{k, k.dataplane(), key("198.51.100.1:443", model.TCP)}
	ok(t, c.d.Reconcile(ctx, &plan.Desired{Settings: settings()}))
	served := &plan.Frontend{Key: c.key, Route: plan.Route{Endpoints: pool("10.244.0.1:80")},
		Outside: &plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}, Filtered: true}
	empty := &plan.Frontend{Key: c.key, Filtered: true}
	ok(t, c.d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{served}}))
	c.sees(services, 100)
	c.sees(outside, 20)
	c.sees(filters, 5)

	done, reads := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { reads <- n }()
		for {
			select {
			case <-done:
				return
			default:
			}
			_, err := c.d.Traffic(ctx, func(_ plan.Key, got dataplane.Traffic) {
				n++
				want := dataplane.Traffic{Attempts: 100, Connections: 75, Refused: [3]int64{0, 20, 5}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("in the midst (-want +got):\n%s", diff)
				}
			})
			if err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range 300 {
		next := served
		if i%2 == 0 {
			next = empty
		}
		ok(t, c.d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{next}}))
	}
	close(done)
	t.Logf("read %d times", <-reads)
	c.want("in the end", 75, 0, 20, 5)
}
