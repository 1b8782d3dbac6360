package web

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
	"sluice/internal/observe/evidence"
	"sluice/internal/plan"
)

// Connections counts the connections to an endpoint: those that are open, and those
// that it has not answered.
type Connections struct{ Open, Unanswered int }

// CountFunc counts the connections of the node to each endpoint.
type CountFunc func(context.Context) (map[netip.AddrPort]Connections, error)

// connectionCounts remembers the last count, because counting takes long on a busy node. It is as
// rare as the reads of a meter.
type connectionCounts struct {
	count CountFunc // nil if it is not possible
	log   logr.Logger
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[netip.AddrPort]Connections // nil if it is not known
	next time.Time
}

// read returns the last count, after a new one if that is due.
func (c *connectionCounts) read(ctx context.Context) map[netip.AddrPort]Connections {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := c.clock.Now()
	if c.count == nil || start.Before(c.next) {
		return c.last
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var err error
	if c.last, err = c.count(ctx); err != nil {
		c.log.V(2).Info("Cannot count the connections to endpoints for the page", "err", err.Error())
		c.last = nil
	}
	end := c.clock.Now()
	c.next = end.Add(min(maxInterval, max(minInterval, costFactor*end.Sub(start))))
	return c.last
}

// endpointRow is an endpoint of an answer, with its connections.
type endpointRow struct {
	explain.EndpointAnswer
	Connections Connections
}

// Condition is what is known against an endpoint in use; that of others has no word.
func (r *endpointRow) Condition() status.Condition { return answersOf(&r.EndpointAnswer) }

func answersOf(e *explain.EndpointAnswer) status.Condition {
	failures := fmt.Sprintf("%s since %s", printable.Count(int(e.Failed), "failed attempt"), e.Since.UTC().Format("15:04:05 UTC"))
	switch e.Answers {
	case evidence.Silent.String():
		return condition(status.Bad, "does not answer", failures)
	case evidence.Resets.String():
		return condition(status.Bad, "refuses connections", failures)
	case evidence.Flaky.String():
		return condition(status.Fair, "answers only some", failures)
	}
	return status.Condition{}
}

func endpointRows(endpoints []explain.EndpointAnswer, counted map[netip.AddrPort]Connections) []endpointRow {
	out := make([]endpointRow, len(endpoints))
	for i, e := range endpoints {
		out[i].EndpointAnswer = e
		if at, err := netip.ParseAddrPort(e.Address); err == nil {
			out[i].Connections = counted[at]
		}
	}
	return out
}

// proxied reports whether the proxy itself connects to the endpoints, which the kernel
// does not count as connections of the Service.
func (s *service) proxied() bool {
	return slices.ContainsFunc(s.frontends, func(f *plan.Frontend) bool { return f.ProxyConnects })
}
