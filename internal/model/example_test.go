package model_test

import (
	"fmt"
	"net/netip"

	"sluice/internal/model"
)

// A source turns each API object into an event. Applying the events to a State
// also says what has to be planned again: here one Service, although both the
// Service and its EndpointSlice arrived.
func ExampleState_Apply() {
	web := model.Name{Namespace: "default", Name: "web"}
	state, dirty := model.NewState(), model.Dirty{}
	state.Apply(&dirty,
		model.SetService{Service: &model.Service{
			Name:       web,
			ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}},
		model.SetSlice{Slice: &model.Slice{
			Name:    model.Name{Namespace: "default", Name: "web-abcde"},
			Service: "web",
			Family:  model.IPv4,
			Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.Endpoint{
				{Addr: netip.MustParseAddr("10.244.1.5"), Node: "node-1", Conditions: model.Ready | model.Serving},
			},
		}},
	)

	for name := range dirty.Services {
		fmt.Println("plan again:", name)
	}
	fmt.Println("revision:", state.Revision())
	fmt.Println("ClusterIP:", state.Service(web).ClusterIPs[0])
	fmt.Println("endpoint:", state.Slices(web)[0].Endpoints[0].Addr)

	dirty = model.Dirty{}
	state.Apply(&dirty, model.DeleteSlice{Name: model.Name{Namespace: "default", Name: "web-abcde"}})
	fmt.Println("slices left:", len(state.Slices(web)))
	// Output:
	// plan again: default/web
	// revision: 2
	// ClusterIP: 10.96.0.10
	// endpoint: 10.244.1.5
	// slices left: 0
}
