package telemetry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/plan"
)

const connectionsName = "sluice_service_connections_total"

const (
	// countersAge is for how long counters are good: several who scrape at a
	// time make the kernel list them once.
	countersAge = time.Second
	// countersTimeout is less than anybody who scrapes waits.
	countersTimeout = 5 * time.Second
)

// ConnectionsOptions is what counting connections needs. The functions are
// those of a dataplane and of an engine.
type ConnectionsOptions struct {
	Counters func(context.Context) (map[plan.Key]uint64, error)
	Snapshot func(read func(*plan.Desired))
	Logger   logr.Logger
	Clock    clock.PassiveClock // nil for the real one
}

// RegisterConnections adds a metric of the connections of each service port.
// The kernel is asked when somebody scrapes, and not otherwise.
func RegisterConnections(r Registry, o ConnectionsOptions) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	c := &connections{ConnectionsOptions: o, desc: metrics.NewDesc(connectionsName,
		"New connections to a service port on this node, by all its addresses of both families.",
		[]string{"namespace", "service", "port", "protocol"}, nil, metrics.ALPHA, "")}
	if err := r.CustomRegister(c); err != nil {
		return fmt.Errorf("register metric %s: %w", connectionsName, err)
	}
	return nil
}

// connections adds up the counters of the kernel, which has one for each
// frontend. They end with their frontend, and start again when the frontend is
// written anew; a sum of them would go back then, and be taken for a restart by
// whoever computes rates. So only what a counter gained is added to the sum.
type connections struct {
	metrics.BaseStableCollector
	ConnectionsOptions
	desc *metrics.Desc

	mu        sync.Mutex
	readAt    time.Time
	last      map[plan.Key]uint64
	sums      map[servicePort]uint64
	lastError string
}

// servicePort is what connections are counted for.
type servicePort struct {
	service  model.Name
	port     string
	protocol model.Protocol
}

// DescribeWithStability is for metrics.StableCollector.
func (c *connections) DescribeWithStability(to chan<- *metrics.Desc) { to <- c.desc }

// CollectWithStability is for metrics.StableCollector.
func (c *connections) CollectWithStability(to chan<- metrics.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.Clock.Now(); c.readAt.IsZero() || now.Sub(c.readAt) >= countersAge {
		c.read(now)
	}
	for p, sum := range c.sums {
		// A label that is no UTF-8 is an error; then there is nothing to tell.
		metric, err := metrics.NewConstMetric(c.desc, metrics.CounterValue, float64(sum),
			p.service.Namespace, p.service.Name, p.port, p.protocol.String())
		if err == nil {
			to <- metric
		}
	}
}

// read asks the kernel. What it said before stands if it does not answer.
func (c *connections) read(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), countersTimeout)
	defer cancel()
	counts, err := c.Counters(ctx)
	c.readAt = now
	if err != nil {
		if text := err.Error(); text != c.lastError {
			c.lastError = text
			c.Logger.Error(err, "Cannot read the connection counters of the kernel")
		}
		return
	}
	c.lastError = ""
	c.add(counts)
}

// add takes in what the counters gained. Service ports that have none any more
// are forgotten.
func (c *connections) add(counts map[plan.Key]uint64) {
	owners := make([]*plan.Frontend, 0, len(counts))
	c.Snapshot(func(d *plan.Desired) { // planning waits, so only look up
		for key := range counts {
			if f := d.Frontends[key]; f != nil {
				owners = append(owners, f)
			}
		}
	})
	sums := make(map[servicePort]uint64, len(c.sums))
	for _, f := range owners {
		p := servicePort{f.Service, f.Port, f.Protocol}
		sum, known := sums[p]
		if !known {
			sum = c.sums[p]
		}
		sums[p] = sum + gained(c.last[f.Key], counts[f.Key])
	}
	c.last, c.sums = counts, sums
}

// gained is what a counter gained. One that went back has started again.
func gained(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
