package kernelspace

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/hns"
	"sluice/internal/model"
)

// Describe implements dataplane.Describer: it asks HNS for the load balancer, and for its endpoints.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, _ netip.Addr) (out dataplane.Description, err error) {
	var id hns.GUID
	d.Locked(func() {
		for _, b := range d.wanted[at.Key] {
			if b.at == at.Key {
				id = b.id
			}
		}
	})
	b, err := d.client.LoadBalancer(id)
	if hns.IsGone(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Present = true
	port := uint16(0)
	for _, m := range b.PortMappings {
		port = m.InternalPort
	}
	out.RouteSize = len(b.HostComputeEndpoints)
	for _, id := range b.HostComputeEndpoints[:min(len(b.HostComputeEndpoints), dataplane.MaxDescribed)] {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		e, err := d.client.Endpoint(id)
		if hns.IsGone(err) {
			continue
		}
		if err != nil {
			return out, err
		}
		for _, ip := range addressesOf(e) {
			if model.FamilyOf(ip) == at.Family() {
				out.Route = append(out.Route, netip.AddrPortFrom(ip, port))
			}
		}
	}
	var traits []string
	if b.Flags&hns.DSR != 0 {
		traits = append(traits, "endpoints answer directly")
	}
	for _, m := range b.PortMappings {
		if m.DistributionType == hns.PerClient {
			traits = append(traits, "a client keeps its endpoint")
		}
		if m.Flags&hns.PreserveDestination != 0 {
			traits = append(traits, "packets keep their destination")
		}
	}
	what := fmt.Sprintf("leads to %d endpoints", len(b.HostComputeEndpoints))
	if len(traits) > 0 {
		what += ", " + strings.Join(traits, ", ")
	}
	out.Objects = []dataplane.Object{{Where: "load balancer " + b.ID.String(), What: what}}
	return out, nil
}
