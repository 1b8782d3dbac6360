package plan_test

import (
	"fmt"
	"net/netip"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// exampleState is a cluster with one Service, which has two endpoints and a node
// port.
func exampleState() *model.State {
	endpoint := func(addr, node string) model.Endpoint {
		return model.Endpoint{Addr: netip.MustParseAddr(addr), Node: node, Conditions: model.Ready | model.Serving}
	}
	state := model.NewState()
	state.Apply(&model.Dirty{},
		model.SetNode{Node: &model.Node{Name: "node-1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}},
		model.SetService{Service: &model.Service{
			Name:       model.Name{Namespace: "default", Name: "web"},
			ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30080}},
		}},
		model.SetSlice{Slice: &model.Slice{
			Name:      model.Name{Namespace: "default", Name: "web-abcde"},
			Service:   "web",
			Family:    model.IPv4,
			Ports:     []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.Endpoint{endpoint("10.244.1.5", "node-1"), endpoint("10.244.2.6", "node-2")},
		}},
	)
	return state
}

// A Planner turns a State into frontends: addresses and ports, and the endpoints
// behind them. The first Update plans everything; later ones plan what is dirty.
func ExamplePlanner_Update() {
	planner := plan.New(plan.Config{NodeName: "node-1"})
	change := planner.Update(exampleState(), &model.Dirty{})

	for _, frontend := range change.Set {
		fmt.Println(frontend.Kind, frontend.Key)
		for _, endpoint := range frontend.Route.Endpoints {
			fmt.Println("  to", endpoint.AddrPort, "local:", endpoint.Local)
		}
	}
	// Output:
	// NodePort 0.0.0.0:30080/TCP
	//   to 10.244.1.5:8080 local: true
	//   to 10.244.2.6:8080 local: false
	// ClusterIP 10.96.0.10:80/TCP
	//   to 10.244.1.5:8080 local: true
	//   to 10.244.2.6:8080 local: false
}

// Lookup finds the frontend that a packet is addressed to. A node port has one
// frontend, which answers on every address that is selected for node ports: by
// default the primary IPs of the node.
func ExampleDesired_Lookup() {
	planner := plan.New(plan.Config{NodeName: "node-1"})
	planner.Update(exampleState(), &model.Dirty{})
	desired := planner.Desired()
	isLocal := func(netip.Addr) bool { return false } // asks the routing table, if that matters

	for _, to := range []plan.Key{
		{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: model.TCP},
		{Addr: netip.MustParseAddr("192.0.2.1"), Port: 30080, Protocol: model.TCP},
		{Addr: netip.MustParseAddr("192.0.2.1"), Port: 22, Protocol: model.TCP},
	} {
		if frontend, found := desired.Lookup(to, isLocal); found {
			fmt.Println(to, "is", frontend.Kind, "of", frontend.Service)
		} else {
			fmt.Println(to, "is no frontend")
		}
	}
	// Output:
	// 10.96.0.10:80/TCP is ClusterIP of default/web
	// 192.0.2.1:30080/TCP is NodePort of default/web
	// 192.0.2.1:22/TCP is no frontend
}

// Decide says what happens to the first packet of a connection, and why.
func ExampleDesired_Decide() {
	planner := plan.New(plan.Config{NodeName: "node-1"})
	planner.Update(exampleState(), &model.Dirty{})
	desired := planner.Desired()

	for _, port := range []uint16{80, 81} {
		decision := desired.Decide(plan.Packet{
			From:   plan.PodClient,
			Source: netip.MustParseAddr("10.244.1.7"),
			To:     plan.Key{Addr: netip.MustParseAddr("10.96.0.10"), Port: port, Protocol: model.TCP},
		})
		fmt.Println(decision.Packet.To, decision.Verdict, "because", decision.Cause)
		if decision.Route != nil {
			fmt.Println("  endpoints:", len(decision.Route.Endpoints))
		}
	}
	// Output:
	// 10.96.0.10:80/TCP forward because frontend
	//   endpoints: 2
	// 10.96.0.10:81/TCP reject because no-such-port
}
