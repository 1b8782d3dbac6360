package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"sluice/internal/model"
)

const (
	benchSliceSize = 100 // endpoints in a slice, as the controller makes them
	benchNodes     = 100
)

// benchCluster has services of one port with endpoints each, in no particular
// order of addresses.
func benchCluster(services, endpoints int) *model.State {
	state := model.NewState()
	var dirty model.Dirty
	state.Apply(&dirty, model.SetNode{Node: &model.Node{
		Name: "node-000", Zone: "zone-0", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}})
	addrs := rand.New(rand.NewPCG(1, 1)).Perm(services * endpoints)
	for s := range services {
		name := model.Name{Namespace: "default", Name: fmt.Sprintf("service-%05d", s)}
		state.Apply(&dirty, model.SetService{Service: &model.Service{
			Name:       name,
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{172, 16 + byte(s>>16), byte(s >> 8), byte(s)})},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}})
		own := addrs[s*endpoints : (s+1)*endpoints]
		for n := 0; len(own) > 0; n++ {
			chunk := own[:min(len(own), benchSliceSize)]
			own = own[len(chunk):]
			state.Apply(&dirty, model.SetSlice{Slice: benchSlice(name, n, chunk)})
		}
	}
	return state
}

func benchSlice(service model.Name, n int, addrs []int) *model.Slice {
	s := &model.Slice{
		Name:    model.Name{Namespace: service.Namespace, Name: fmt.Sprintf("%s-%04d", service.Name, n)},
		Service: service.Name,
		Family:  model.IPv4,
		Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, model.Endpoint{
			Addr:       netip.AddrFrom4([4]byte{10, byte(a >> 16), byte(a >> 8), byte(a)}),
			Node:       fmt.Sprintf("node-%03d", a%benchNodes),
			Conditions: model.Ready | model.Serving,
		})
	}
	return s
}

var benchSizes = []struct{ services, endpoints int }{{10_000, 2}, {5_000, 50}, {1, 100_000}}

func BenchmarkPlanFromScratch(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			state := benchCluster(size.services, size.endpoints)
			b.ReportAllocs()
			for b.Loop() {
				c := New(Config{NodeName: "node-000"}).Update(state, &model.Dirty{})
				if len(c.Set) != size.services {
					b.Fatalf("%d frontends", len(c.Set))
				}
			}
		})
	}
}

// BenchmarkPlanOneSliceChange adds and removes one endpoint of one Service.
func BenchmarkPlanOneSliceChange(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			state := benchCluster(size.services, size.endpoints)
			planner := New(Config{NodeName: "node-000"})
			planner.Update(state, &model.Dirty{})
			old := state.Slices(model.Name{Namespace: "default", Name: "service-00000"})[0]
			fewer := *old
			fewer.Endpoints = old.Endpoints[1:]
			next, other := &fewer, old

			b.ReportAllocs()
			for b.Loop() {
				var dirty model.Dirty
				state.Apply(&dirty, model.SetSlice{Slice: next})
				if c := planner.Update(state, &dirty); len(c.Set) != 1 {
					b.Fatalf("%d frontends", len(c.Set))
				}
				next, other = other, next
			}
		})
	}
}
