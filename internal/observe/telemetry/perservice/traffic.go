package perservice

import (
	"context"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const (
	// countersAge is for how long counters are reused, so that concurrent scrapes
	// make the kernel list them once.
	countersAge = time.Second
	// countersTimeout is shorter than the timeout of any scrape.
	countersTimeout = 5 * time.Second
)

// kernelReader remembers when the counters were last read, and the last error.
type kernelReader struct {
	at        time.Time
	lastError string
}

// readKernel reads the counters of the kernel. If that fails, the last values stay.
func (c *Collector) readKernel(now time.Time) {
	if c.Traffic == nil || !c.services.begun || !c.kernel.at.IsZero() && now.Sub(c.kernel.at) < countersAge {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countersTimeout)
	defer cancel()
	_, _ = c.read(ctx, func(plan.Key, dataplane.Traffic) {}) // it logs errors
}

// Read reads the counters of the kernel for somebody else, and counts what it reads as a
// scrape does: what one reader sees refused is reported, whether anybody scrapes or not. It is
// a dataplane.TrafficFunc.
func (c *Collector) Read(ctx context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	if !c.services.begun {
		return c.Traffic(ctx, each)
	}
	return c.read(ctx, each)
}

func (c *Collector) read(ctx context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
	since := c.kernel.at
	c.kernel.at = c.Clock.Now()
	unmatched, err := c.Traffic(ctx, func(key plan.Key, t dataplane.Traffic) {
		c.services.count(key, t)
		each(key, t)
	})
	if err != nil {
		if text := err.Error(); text != c.kernel.lastError {
			c.kernel.lastError = text
			c.Logger.Error(err, "Cannot read the connection counters of the kernel")
		}
		return unmatched, err
	}
	c.kernel.lastError = ""
	c.services.countUnmatched(unmatched)
	c.reportRefusals(since)
	return unmatched, nil
}

// refusal is a Service that refuses connections for a cause. Service is zero for
// packets to no frontend.
type refusal struct {
	service model.Name
	cause   plan.Cause
}

// reportRefusals reports what was refused since the last read.
func (c *Collector) reportRefusals(since time.Time) {
	if c.Refused != nil {
		for r, packets := range c.services.refusing {
			c.Refused(r.service, r.cause, packets, since)
		}
	}
	clear(c.services.refusing)
}

// refuse adds to what is reported after a read.
func (all *services) refuse(service model.Name, why plan.Cause, packets uint64) {
	if packets > 0 {
		all.refused[why] += packets
		all.refusing[refusal{service, why}] += packets
	}
}

// count adds what the kernel counted for a frontend since the last read.
func (all *services) count(key plan.Key, now dataplane.Traffic) {
	f := all.frontends[key]
	if f == nil {
		return // its commit is not processed yet, or it was removed
	}
	f.port.counted = true
	if !f.based {
		f.based, f.last = true, now
		return
	}
	delta := f.advance(now)
	to := all.countsOf(f.service)
	if f.service.own {
		f.port.connections += uint64(delta.Connections)
	} else {
		to.connections += uint64(delta.Connections)
	}
	for i, n := range delta.Refused {
		to.refused[i] += uint64(n)
		all.refuse(f.service.name, plan.Cause(i), uint64(n))
	}
}

func (f *frontend) advance(now dataplane.Traffic) dataplane.Traffic {
	gained, ok := now.Since(f.last)
	if !ok { // it counts from zero again
		f.last = dataplane.Traffic{}
		gained, _ = now.Since(f.last)
	}
	f.last = f.last.Plus(gained)
	return gained
}

func (all *services) countUnmatched(now dataplane.UnmatchedTraffic) {
	if all.based {
		all.refuse(model.Name{}, plan.NoSuchPort, delta(all.unmatched.NoSuchPort, now.NoSuchPort))
		all.refuse(model.Name{}, plan.UnusedAddress, delta(all.unmatched.UnusedAddress, now.UnusedAddress))
	}
	all.unmatched, all.based = now, true
}

// delta is what a counter gained. One that went back was reset.
func delta(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
