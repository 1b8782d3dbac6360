package userspace

import (
	"context"
	"sync/atomic"

	"sluice/internal/dataplane"
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

// The reasons in refusedTotal.
const (
	noEndpoint = "endpoints"
	noFile     = "file-descriptors"
)

var metrics = []dataplane.Metric{
	{Name: acceptedTotal, Help: "Connections of TCP and clients of UDP that the proxy forwards or forwarded to an endpoint.",
		Labels: []string{"protocol"}, Counter: true},
	{Name: retriedTotal, Help: "Endpoints that refused a connection or did not answer, so that another one was tried.",
		Labels: []string{"protocol"}, Counter: true},
	{Name: refusedTotal, Help: "Connections of TCP and packets of UDP that were refused: no endpoint took them, or there are too many for the file descriptors of the proxy.",
		Labels: []string{"protocol", "reason"}, Counter: true},
	{Name: connectionsGauge, Help: "Connections of TCP that the proxy forwards now."},
	{Name: limitGauge, Help: "Connections of TCP that the proxy can forward at a time, with the file descriptors it has."},
}

type counter struct{ atomic.Uint64 }

func (c *counter) inc() { c.Add(1) }

// traffic counts what the sockets of a family and protocol did.
type traffic struct{ accepted, retried, refused, exceeded counter }

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
		var accepted, retried, refused, exceeded uint64
		for _, f := range families {
			t := d.counters.of(f, p)
			accepted += t.accepted.Load()
			retried += t.retried.Load()
			refused += t.refused.Load()
			exceeded += t.exceeded.Load()
		}
		name := p.String()
		add(acceptedTotal, float64(accepted), name)
		add(retriedTotal, float64(retried), name)
		add(refusedTotal, float64(refused), name, noEndpoint)
		if p == model.TCP {
			add(refusedTotal, float64(exceeded), name, noFile)
		}
	}
	add(connectionsGauge, float64(len(d.slots)))
	add(limitGauge, float64(cap(d.slots)))
}
