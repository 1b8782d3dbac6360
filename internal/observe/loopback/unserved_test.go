package loopback

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// counter is a kernel that counts what a test says.
type counter struct {
	mu      sync.Mutex
	ports   map[dataplane.LoopbackPort]struct{}
	reject  bool
	packets map[dataplane.LoopbackPackets]uint64
	fails   bool
}

func (c *counter) CountLoopback(_ context.Context, ports map[dataplane.LoopbackPort]struct{}, reject bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails {
		return errors.New("out of order")
	}
	c.ports, c.reject = maps.Clone(ports), reject
	return nil
}

func (c *counter) LoopbackPackets(context.Context) (map[dataplane.LoopbackPackets]uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.packets), nil
}

func TestUnservedNodePortsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, counted := &counter{packets: map[dataplane.LoopbackPackets]uint64{}}, map[dataplane.LoopbackPackets]uint64{}
		u := NewUnserved(Unserved{Clock: clock.RealClock{}, Counter: c, Count: func(of dataplane.LoopbackPackets, n uint64) { counted[of] += n }})
		d := &plan.Desired{Frontends: map[plan.Key]*plan.Frontend{}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = u.Run(ctx, desires{d}) }()
		change := func(c *plan.Change) {
			u.Committed(&engine.Commit{Change: c})
			synctest.Wait()
		}
		settings := func(s plan.Settings) { d.Settings = s; change(&plan.Change{Settings: &s}) }
		add := func(p model.Protocol, port uint16) *plan.Frontend {
			f := nodePort(web, model.IPv4, port, p)
			d.Frontends[f.Key] = f
			return f
		}
		tcp := dataplane.LoopbackPackets{Family: model.IPv4, Protocol: model.TCP}

		add(model.TCP, 30080)
		settings(plan.Settings{})
		if len(c.ports) != 0 {
			t.Errorf("%v are counted, though nobody asks for it", c.ports)
		}
		settings(plan.Settings{UnservedLoopback: plan.UnservedCount})
		if _, ok := c.ports[dataplane.LoopbackPort{LoopbackPackets: tcp, Port: 30080}]; len(c.ports) != 1 || !ok || c.reject {
			t.Errorf("%v are counted, rejecting %t", c.ports, c.reject)
		}
		c.packets[tcp] = 3
		clock.RealClock{}.Sleep(countEvery)
		synctest.Wait()
		c.packets[tcp] = 5
		clock.RealClock{}.Sleep(countEvery)
		synctest.Wait()
		if counted[tcp] != 5 {
			t.Errorf("%d packets are counted, want 5", counted[tcp])
		}

		// What is served is not counted; SCTP never is served.
		add(model.SCTP, 30081)
		served := plan.Settings{UnservedLoopback: plan.UnservedReject}
		served.LoopbackIPs = append(served.LoopbackIPs, here)
		c.fails = true
		settings(served)
		c.fails = false // tried again
		clock.RealClock{}.Sleep(countEvery)
		synctest.Wait()
		if len(c.ports) != 1 || !c.reject {
			t.Errorf("%v are counted, rejecting %t", c.ports, c.reject)
		}
		delete(d.Frontends, plan.NodePortKey(model.IPv4, 30081, model.SCTP))
		change(&plan.Change{Removed: []plan.Key{plan.NodePortKey(model.IPv4, 30081, model.SCTP)},
			Before: map[plan.Key]*plan.Frontend{plan.NodePortKey(model.IPv4, 30081, model.SCTP): nodePort(web, model.IPv4, 30081, model.SCTP)}})
		if len(c.ports) != 0 {
			t.Errorf("%v are counted still", c.ports)
		}
	})
}
