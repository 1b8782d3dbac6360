//go:build linux

package userspace

import (
	"context"
	"sync/atomic"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/relay"
	"sluice/internal/model"
)

// The names of the metrics.
const (
	acceptedTotal    = "sluice_userspace_accepted_connections_total"
	retriedTotal     = "sluice_userspace_retried_endpoints_total"
	refusedTotal     = "sluice_userspace_refused_connections_total"
	connectionsGauge = "sluice_userspace_connections"
	limitGauge       = "sluice_userspace_connections_limit"
)

var metrics = []dataplane.Metric{
	{Name: acceptedTotal, Help: "Connections of TCP and clients of UDP that the proxy forwards or forwarded to an endpoint.",
		Labels: []string{"protocol"}, Counter: true},
	{Name: retriedTotal, Help: "Endpoints that refused a connection or did not answer, so that another one was tried.",
		Labels: []string{"protocol"}, Counter: true},
	{Name: refusedTotal, Help: "Connections of TCP and packets of UDP that were refused: no endpoint took them, or there are too many for the file descriptors of the proxy, or for the share of a client or Service, or they go round in circles.",
		Labels: []string{"protocol", "reason"}, Counter: true},
	{Name: connectionsGauge, Help: "Connections of TCP that the proxy forwards now."},
	{Name: limitGauge, Help: "Connections of TCP that the proxy can forward at a time, with the file descriptors it has."},
}

type counter struct{ atomic.Uint64 }

func (c *counter) inc() { c.Add(1) }

// traffic counts what the sockets of a family and protocol did.
type traffic struct {
	accepted, retried counter
	refused           [len(relay.Refusals)]counter // by reason
}

// counters are for each family and protocol.
type counters [2][2]traffic

func (c *counters) of(f model.Family, p model.Protocol) *traffic {
	i, j := 0, 0
	if f == model.IPv6 {
		i = 1
	}
	if p == model.UDP {
		j = 1
	}
	return &c[i][j]
}

// Count implements dataplane.Counter. A connection is counted whatever its family.
func (d *Dataplane) Count(_ context.Context, families []model.Family, add func(metric string, value float64, labels ...string)) {
	for _, p := range protocols {
		var accepted, retried uint64
		var refused [len(relay.Refusals)]uint64
		for _, f := range families {
			t := d.counters.of(f, p)
			accepted += t.accepted.Load()
			retried += t.retried.Load()
			for why := range refused {
				refused[why] += t.refused[why].Load()
			}
		}
		name := p.String()
		add(acceptedTotal, float64(accepted), name)
		add(retriedTotal, float64(retried), name)
		for _, why := range relay.Refusals {
			add(refusedTotal, float64(refused[why]), name, why.String())
		}
	}
	now, limit := d.budget.Connections()
	add(connectionsGauge, float64(now))
	add(limitGauge, float64(limit))
}
