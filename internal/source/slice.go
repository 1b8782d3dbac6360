package source

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/internal/model"
)

// Slice converts an EndpointSlice. It returns false for slices of headless
// Services and of address types other than IP.
func Slice(in *discoveryv1.EndpointSlice) (*model.Slice, bool) {
	service := in.Labels[discoveryv1.LabelServiceName]
	_, headless := in.Labels[v1.IsHeadlessService]
	family, ok := sliceFamily(in.AddressType)
	if headless || !ok {
		return nil, false
	}
	name := model.Name{Namespace: intern(in.Namespace), Name: in.Name}
	r := NewReport(model.SliceObject(name))
	out := &model.Slice{
		Name:      name,
		UID:       string(in.UID),
		Service:   service,
		Family:    family,
		Ports:     r.slicePorts(in.Ports),
		Endpoints: r.endpoints(in.Endpoints, family),
		Weight:    r.weight(in.Annotations),
		Trigger:   trigger(in.Annotations),
	}
	r.unknownAnnotations(in.Annotations, "an EndpointSlice", sliceAnnotations)
	out.Problems = r.List()
	return out, true
}

// trigger returns the time of the change that an object was last written for.
// It is only used to measure delays, so a malformed time is not a problem of
// the object.
func trigger(annotations map[string]string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, annotations[v1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

func sliceFamily(t discoveryv1.AddressType) (model.Family, bool) {
	switch t {
	case discoveryv1.AddressTypeIPv4:
		return model.IPv4, true
	case discoveryv1.AddressTypeIPv6:
		return model.IPv6, true
	}
	return 0, false
}

// slicePorts leaves out ports without a number: they stand for all ports, and
// match no service port.
func (r *Report) slicePorts(in []discoveryv1.EndpointPort) []model.SlicePort {
	out := make([]model.SlicePort, 0, len(in))
	for i := range in {
		p := &in[i]
		if p.Port == nil {
			continue
		}
		port, ok := r.port(fmt.Sprintf("ports[%d].port", i), *p.Port)
		if !ok {
			continue
		}
		var named v1.Protocol
		if p.Protocol != nil {
			named = *p.Protocol
		}
		protocol, ok := r.protocol(fmt.Sprintf("ports[%d].protocol", i), named)
		if !ok {
			continue
		}
		out = append(out, model.SlicePort{Name: internPtr(p.Name), Protocol: protocol, Port: port})
	}
	return exact(out)
}

// endpoints uses the first address of each endpoint: the others are alternative
// addresses of the same one.
func (r *Report) endpoints(in []discoveryv1.Endpoint, family model.Family) []model.Endpoint {
	out := make([]model.Endpoint, 0, len(in))
	hints := hintCache{}
	for i := range in {
		e := &in[i]
		if len(e.Addresses) == 0 {
			r.Malformed(fmt.Sprintf("endpoints[%d].addresses", i), "give every endpoint one address", "the endpoint has no address")
			continue
		}
		addr, ok := r.endpointAddr(i, e.Addresses[0], family)
		if !ok {
			continue
		}
		out = append(out, model.Endpoint{
			Addr:       addr,
			Node:       internPtr(e.NodeName),
			Hints:      hints.of(e.Hints),
			Conditions: conditions(&e.Conditions),
		})
	}
	return exact(out)
}

// endpointAddr is the address of an endpoint, and false if it was reported.
func (r *Report) endpointAddr(i int, s string, family model.Family) (netip.Addr, bool) {
	addr, err := parseAddr(s)
	if err == nil {
		if err = checkFamily(addr, family); err != nil {
			err = fmt.Errorf("%w, and addressType is %s", err, family)
		}
	}
	malformed := err != nil
	if !malformed {
		if err = checkEndpoint(addr); err == nil {
			return addr, true
		}
		err = fmt.Errorf("%s cannot be used: %w", addr, err)
	}
	r.add(model.Problem{
		Field:     fmt.Sprintf("endpoints[%d].addresses[0]", i),
		Reason:    fmt.Sprintf("the endpoint is ignored: %v", err),
		Remedy:    "use an address that every node can reach",
		Malformed: malformed,
	})
	return netip.Addr{}, false
}

// conditions resolves absent conditions as the API defines them.
func conditions(c *discoveryv1.EndpointConditions) model.Conditions {
	var out model.Conditions
	if c.Ready == nil || *c.Ready {
		out |= model.Ready
	}
	if c.Serving == nil || *c.Serving {
		out |= model.Serving
	}
	if c.Terminating != nil && *c.Terminating {
		out |= model.Terminating
	}
	return out
}

// hintCache lets endpoints of a slice share hints: there are as many different
// ones as zones or nodes, not as endpoints.
type hintCache map[string]*model.Hints

func (c hintCache) of(in *discoveryv1.EndpointHints) *model.Hints {
	if in == nil || len(in.ForZones)+len(in.ForNodes) == 0 {
		return nil
	}
	key := hintKey(in)
	if h, ok := c[key]; ok {
		return h
	}
	h := &model.Hints{}
	for _, zone := range in.ForZones {
		h.Zones = append(h.Zones, intern(zone.Name))
	}
	for _, node := range in.ForNodes {
		h.Nodes = append(h.Nodes, intern(node.Name))
	}
	h.Zones, h.Nodes = exact(h.Zones), exact(h.Nodes)
	c[key] = h
	return h
}

func hintKey(in *discoveryv1.EndpointHints) string {
	if len(in.ForZones) == 1 && len(in.ForNodes) == 0 {
		return in.ForZones[0].Name // the usual case, without building a string
	}
	var b strings.Builder
	for _, zone := range in.ForZones {
		fmt.Fprintf(&b, "\x00z%s", zone.Name)
	}
	for _, node := range in.ForNodes {
		fmt.Fprintf(&b, "\x00n%s", node.Name)
	}
	return b.String()
}
