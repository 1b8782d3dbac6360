//lint:file-ignore SA1019 Endpoints is deprecated, and manifests still hold it.

package source

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"sluice/internal/model"
)

// SlicesOfEndpoints converts an Endpoints object to one slice for each subset
// and family. Their names contain a colon, which names of EndpointSlices
// cannot. It returns nil for headless Services.
func SlicesOfEndpoints(in *v1.Endpoints) []*model.Slice {
	if _, headless := in.Labels[v1.IsHeadlessService]; headless {
		return nil
	}
	var out []*model.Slice
	for i := range in.Subsets {
		out = append(out, slicesOfSubset(in, i)...)
	}
	return exact(out)
}

// slicesOfSubset attaches the problems of the subset to its first slice, and
// creates an empty one for them if there is no other.
func slicesOfSubset(in *v1.Endpoints, i int) []*model.Slice {
	subset := &in.Subsets[i]
	r := NewReport(model.Object{Kind: "Endpoints", Namespace: in.Namespace, Name: in.Name})
	ports := r.subsetPorts(i, subset.Ports)
	byFamily := map[model.Family][]model.Endpoint{}
	r.subsetAddresses(fmt.Sprintf("subsets[%d].addresses", i), subset.Addresses, model.Ready|model.Serving, byFamily)
	r.subsetAddresses(fmt.Sprintf("subsets[%d].notReadyAddresses", i), subset.NotReadyAddresses, 0, byFamily)
	problems := r.List()
	if len(byFamily) == 0 && len(problems) > 0 {
		byFamily[model.IPv4] = nil
	}

	var out []*model.Slice
	for _, family := range model.Families {
		endpoints, ok := byFamily[family]
		if !ok {
			continue
		}
		out = append(out, &model.Slice{
			Name: model.Name{
				Namespace: intern(in.Namespace),
				Name:      fmt.Sprintf("endpoints:%s:%d:%s", in.Name, i, family),
			},
			Service:   in.Name,
			Family:    family,
			Ports:     ports,
			Endpoints: exact(endpoints),
			Trigger:   trigger(in.Annotations),
			Problems:  problems,
		})
		problems = nil
	}
	return out
}

func (r *Report) subsetPorts(subset int, in []v1.EndpointPort) []model.SlicePort {
	out := make([]model.SlicePort, 0, len(in))
	for i := range in {
		p := &in[i]
		port, ok := r.port(fmt.Sprintf("subsets[%d].ports[%d].port", subset, i), p.Port)
		protocol, known := r.protocol(fmt.Sprintf("subsets[%d].ports[%d].protocol", subset, i), p.Protocol)
		if !ok || !known {
			continue
		}
		out = append(out, model.SlicePort{Name: intern(p.Name), Protocol: protocol, Port: port})
	}
	return exact(out)
}

func (r *Report) subsetAddresses(field string, in []v1.EndpointAddress, c model.Conditions, out map[model.Family][]model.Endpoint) {
	for i := range in {
		addr, ok := r.addr(fmt.Sprintf("%s[%d].ip", field, i), in[i].IP, checkEndpoint)
		if !ok {
			continue
		}
		family := model.FamilyOf(addr)
		out[family] = append(out[family], model.Endpoint{
			Addr:       addr,
			Node:       internPtr(in[i].NodeName),
			Conditions: c,
		})
	}
}
