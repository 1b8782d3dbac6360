package userspace

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// Describe reads the elements of one frontend from the table, and adds its endpoints
// and the connections that they have now.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	out, err := d.Dataplane.Describe(ctx, at, client)
	if err != nil {
		return out, err
	}
	f := d.directory.copyOf(at.Key)
	if f == nil {
		return out, nil
	}
	out.Route, out.RouteSize = describeRoute(&f.Route)
	if f.Outside != nil {
		out.Outside, out.OutsideSize = describeRoute(f.Outside)
	}
	if endpoint, expires, ok := f.balancer.Remembered(client); ok {
		out.Remembered = append(out.Remembered, dataplane.Remembered{Endpoint: endpoint, Expires: expires})
	}
	total := 0
	var text []string
	connections := f.connections()
	for _, endpoint := range slices.SortedFunc(maps.Keys(connections), netip.AddrPort.Compare) {
		n := connections[endpoint]
		if total += n; len(text) < dataplane.MaxDescribed {
			text = append(text, fmt.Sprintf("%v has %d", endpoint, n))
		}
	}
	what := "forwards no connection now"
	if total > 0 {
		what = "forwards " + printable.Count(total, "connection") + " now: " + strings.Join(text, ", ")
	}
	out.Objects = append(out.Objects, dataplane.Object{Where: "the proxy itself", What: what})
	return out, nil
}

func describeRoute(r *plan.Route) (some []netip.AddrPort, size int) {
	for _, e := range r.Endpoints[:min(len(r.Endpoints), dataplane.MaxDescribed)] {
		some = append(some, e.AddrPort)
	}
	return some, len(r.Endpoints)
}
