package enginetest

import (
	"net/netip"
	"strings"

	"sluice/internal/model"
)

// Service sets a Service "namespace/name" with a ClusterIP and TCP port 80, called
// http, changed by edits.
func Service(name, clusterIP string, edits ...func(*model.Service)) model.SetService {
	namespace, name, _ := strings.Cut(name, "/")
	s := &model.Service{
		Name: model.Name{Namespace: namespace, Name: name}, ClusterIPs: []netip.Addr{netip.MustParseAddr(clusterIP)},
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	for _, edit := range edits {
		edit(s)
	}
	return model.SetService{Service: s}
}

// Slice sets an IPv4 EndpointSlice of a Service with port 8080 for each of its ports,
// and ready endpoints, each "address@node".
func Slice(of *model.Service, endpoints ...string) model.SetSlice {
	s := &model.Slice{Name: model.Name{Namespace: of.Name.Namespace, Name: of.Name.Name + "-1"}, Service: of.Name.Name, Family: model.IPv4}
	for _, p := range of.Ports {
		s.Ports = append(s.Ports, model.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: 8080})
	}
	for _, e := range endpoints {
		addr, node, _ := strings.Cut(e, "@")
		s.Endpoints = append(s.Endpoints, model.Endpoint{
			Addr: netip.MustParseAddr(addr), Node: node, Conditions: model.Ready | model.Serving,
		})
	}
	return model.SetSlice{Slice: s}
}
