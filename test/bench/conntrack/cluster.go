//go:build linux

package main

import (
	"net/netip"
	"strconv"
	"time"

	"sluice/internal/model"
)

func serviceName(i int) string { return "svc-" + strconv.Itoa(i) }

// cluster is the objects of a node with Services of one endpoint each.
func (w *worker) cluster() []model.Event {
	events := []model.Event{model.SetNode{Node: &model.Node{Name: "bench", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}}}
	w.endpoints = make([][]model.Endpoint, services)
	for i := range services {
		events = append(events, model.SetService{Service: &model.Service{
			Name:       model.Name{Namespace: "bench", Name: serviceName(i)},
			ClusterIPs: []netip.Addr{ipv4(firstClusterIP + uint32(i))},
			Ports:      []model.ServicePort{{Name: "dns", Protocol: model.UDP, Port: port}},
		}})
		w.endpoints[i] = []model.Endpoint{endpoint(firstPodIP + uint32(i))}
		events = append(events, w.slice(i))
	}
	return events
}

func endpoint(ip uint32) model.Endpoint {
	return model.Endpoint{Addr: ipv4(ip), Node: "elsewhere", Conditions: model.Ready | model.Serving}
}

// slice is the EndpointSlice of a Service.
func (w *worker) slice(i int) model.Event {
	return model.SetSlice{Slice: &model.Slice{
		Name:      model.Name{Namespace: "bench", Name: serviceName(i)},
		Service:   serviceName(i),
		Family:    model.IPv4,
		Ports:     []model.SlicePort{{Name: "dns", Protocol: model.UDP, Port: targetPort}},
		Endpoints: w.endpoints[i],
	}}
}

// fresh returns a new endpoint.
func (w *worker) fresh() model.Endpoint {
	w.made++
	return endpoint(firstFreshIP + w.made)
}

// pick returns the Service of the next change: each in turn, except the first.
func (w *worker) pick() int {
	w.next = w.next%(services-1) + 1
	return w.next
}

// change changes the endpoints of a Service, and waits for the commit.
func (w *worker) change(i int, endpoints ...model.Endpoint) answer {
	w.endpoints[i] = endpoints
	begin := time.Now()
	w.engine.Update(w.slice(i))
	<-w.commits
	return answer{Took: time.Since(begin)}
}
