package ipvs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/ipvs/leftover"
)

// Describe reads the elements of one frontend from the table, and its virtual service.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	out, err := d.Dataplane.Describe(ctx, at, client)
	if err != nil {
		return out, err
	}
	k := keyFor(at.Key, at.IP)
	service, there, err := d.reader.Service(ctx, k)
	if err != nil || !there || !leftover.Owned(service) {
		return out, err
	}
	destinations, err := d.reader.Destinations(ctx, k)
	if err != nil {
		return out, err
	}
	slices.SortFunc(destinations, compareDestinations)
	var text []string
	for _, dest := range destinations {
		if dest.Weight > 0 {
			out.RouteSize++
			if len(out.Route) < dataplane.MaxDescribed {
				out.Route = append(out.Route, dest.AddrPort)
			}
		}
		if len(text) < dataplane.MaxDescribed {
			text = append(text, fmt.Sprintf("%s weight %d, %s", dest.AddrPort, dest.Weight, printable.Count(dest.Connections(), "connection")))
		}
	}
	out.Objects = append(out.Objects, dataplane.Object{
		Where: "IPVS, virtual service " + k.String(),
		What:  "scheduler " + service.Scheduler + "; " + strings.Join(text, "; "),
	})
	return out, nil
}
