//go:build linux

package lab

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// TrafficOptions configures traffic.
type TrafficOptions struct {
	// Rate is how many new connections are opened each second, over all flows;
	// 100 if zero.
	Rate int
	// Sessions is how many connections are kept open on each TCP flow, and
	// asked every Interval.
	Sessions int
	// Interval is 20 ms if zero.
	Interval time.Duration
}

// Traffic flows in the background of a test while other things happen,
// and counts what is lost.
type Traffic struct {
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mutex sync.Mutex
	count TrafficCount
}

// TrafficCount counts the outcomes of traffic.
type TrafficCount struct {
	Opened int // new connections
	Failed int // those of them that got no answer
	Asked  int // questions on standing connections
	Broken int // standing connections that broke
	// Losses describes the first few failures.
	Losses []string
}

// Lost is how much was lost in all.
func (c TrafficCount) Lost() int { return c.Failed + c.Broken }

func (c TrafficCount) String() string {
	return fmt.Sprintf("%d of %d new connections failed, %d standing ones broke over %d questions %q",
		c.Failed, c.Opened, c.Broken, c.Asked, c.Losses)
}

// StartTraffic starts background traffic on all flows in turn. The standing
// connections are up when it returns.
func (l *Lab) StartTraffic(ctx context.Context, flows []Flow, o TrafficOptions) (*Traffic, error) {
	if o.Rate == 0 {
		o.Rate = 100
	}
	if o.Interval == 0 {
		o.Interval = 20 * time.Millisecond
	}
	t := &Traffic{}
	ctx, t.cancel = context.WithCancel(ctx)
	for _, f := range flows {
		for range o.Sessions {
			if f.Protocol != TCP {
				continue
			}
			s, err := l.Open(f)
			if err != nil {
				t.Stop()
				return nil, err
			}
			t.workers.Go(func() { t.keepAsking(ctx, s, o.Interval) })
		}
	}
	t.workers.Go(func() { t.keepOpening(ctx, l, flows, time.Second/time.Duration(o.Rate)) })
	return t, nil
}

// Stop ends the traffic and returns its outcomes.
func (t *Traffic) Stop() TrafficCount {
	t.cancel()
	t.workers.Wait()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.count
}

// keepOpening opens connections at a steady pace, without waiting for one
// before the next.
func (t *Traffic) keepOpening(ctx context.Context, l *Lab, flows []Flow, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f := flows[i%len(flows)]
			t.workers.Go(func() {
				// Not ctx: what has begun shall be finished and counted.
				o := l.Connect(context.Background(), f)
				t.note(func(c *TrafficCount) {
					c.Opened++
					if o.Kind != Answered {
						c.Failed++
						c.lost(fmt.Sprintf("%v: %v", f, o))
					}
				})
			})
		}
	}
}

// keepAsking uses a standing connection until it breaks.
func (t *Traffic) keepAsking(ctx context.Context, s *Session, pause time.Duration) {
	defer s.Close()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		_, err := s.Ask()
		t.note(func(c *TrafficCount) {
			c.Asked++
			if err != nil {
				c.Broken++
				c.lost(err.Error())
			}
		})
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (t *Traffic) note(f func(*TrafficCount)) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	f(&t.count)
}

func (c *TrafficCount) lost(what string) {
	if len(c.Losses) < 5 {
		c.Losses = append(c.Losses, what)
	}
}
