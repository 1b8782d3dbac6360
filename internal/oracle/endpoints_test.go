package oracle_test

import (
	"testing"

	"sluice/internal/model"
)

// addSlice gives web one more slice, with one endpoint.
func (s *setting) addSlice(name, endpoint string, c model.Conditions) *model.Slice {
	slice := s.newSlice(name, "web", s.family)
	slice.Endpoints = []model.Endpoint{newEndpoint(s.family, endpoint, c)}
	return slice
}

func TestWhichEndpoints(t *testing.T) {
	play(t, []scenario{
		{
			name: "only ready endpoints are used",
			given: func(s *setting) {
				s.add("pod-2", unready)
				s.add("far-2", leaving)
			},
			want: []string{"pod-2 > cluster:80 = forward pod-1 far-1"},
		}, {
			name:  "ready is enough",
			given: func(s *setting) { s.endpoints(model.Ready, "pod-1", "far-1") },
			want:  []string{"pod-2 > cluster:80 = forward pod-1 far-1"},
		}, {
			name:  "ready counts even if the endpoint terminates",
			given: func(s *setting) { s.add("far-2", ready|model.Terminating) },
			want:  []string{"pod-2 > cluster:80 = forward pod-1 far-1 far-2"},
		}, {
			name:  "none ready: those serving and terminating step in",
			given: func(s *setting) { s.endpoints(leaving, "far-1", "far-2"); s.add("pod-1", failing) },
			want:  []string{"pod-2 > cluster:80 = forward far-1 far-2", "outside > lb:80 = forward far-1* far-2*"},
		}, {
			name:  "serving alone is not enough",
			given: func(s *setting) { s.endpoints(model.Serving, "pod-1", "far-1") },
			want:  []string{"pod-2 > cluster:80 = reject"},
		}, {
			name:  "terminating alone is not enough",
			given: func(s *setting) { s.endpoints(failing, "pod-1", "far-1") },
			want:  []string{"pod-2 > cluster:80 = reject"},
		}, {
			name:  "a slice port of another name is another port",
			given: func(s *setting) { s.slice.Ports[0].Name = "https" },
			want:  []string{"pod-2 > cluster:80 = reject"},
		}, {
			name:  "a slice port of another protocol is another port",
			given: func(s *setting) { s.slice.Ports[0].Protocol = model.UDP },
			want:  []string{"pod-2 > cluster:80 = reject"},
		}, {
			name:  "slices of one Service may have different ports",
			given: func(s *setting) { s.addSlice("web-more", "far-2", ready).Ports[0].Port = 9090 },
			want:  []string{"pod-2 > cluster:80 = forward pod-1 far-1 far-2:9090"},
		}, {
			name:  "a slice of another Service is not ours",
			given: func(s *setting) { s.slice.Service = "other" },
			want:  []string{"pod-2 > cluster:80 = reject"},
		}, {
			name:  "a slice of another namespace is not ours",
			given: func(s *setting) { s.slice.Name.Namespace = "other" },
			want:  []string{"pod-2 > cluster:80 = reject"},
		}, {
			name:  "the other family's slices are not used",
			given: func(s *setting) { s.slice.Family = otherFamily(s.family) },
			want:  []string{"pod-2 > cluster:80 = reject"},
		}, {
			name: "the other family's addresses in our slices are not used",
			given: func(s *setting) {
				s.slice.Endpoints = append(s.slice.Endpoints, newEndpoint(otherFamily(s.family), "far-2", ready))
			},
			want: []string{"pod-2 > cluster:80 = forward pod-1 far-1"},
		}, {
			name: "addresses that no endpoint can have are ignored",
			given: func(s *setting) {
				s.endpoints(ready, "loopback", "nowhere", "link-local", "multicast", "far-2")
			},
			want: []string{"pod-2 > cluster:80 = forward far-2"},
		}, {
			name:  "nothing but such addresses is no endpoint at all",
			given: func(s *setting) { s.endpoints(ready, "loopback", "nowhere", "link-local", "multicast") },
			want:  []string{"pod-2 > cluster:80 = reject"},
		}, {
			name:  "host-network pods are endpoints like others",
			given: func(s *setting) { s.endpoints(ready, "node") },
			want:  []string{"pod-2 > cluster:80 = forward node", "outside > external:80 = forward node*"},
		},
	})
}

func TestEndpointInTwoSlices(t *testing.T) {
	play(t, []scenario{
		{
			name:  "an endpoint in two slices counts once",
			given: func(s *setting) { s.addSlice("web-again", "far-1", ready) },
			want:  []string{"pod-2 > cluster:80 = forward pod-1 far-1"},
		}, {
			name:  "ready in the first of two slices wins",
			given: func(s *setting) { s.addSlice("web-zzz", "far-1", failing) },
			want:  []string{"pod-2 > cluster:80 = forward pod-1 far-1"},
		}, {
			name:  "ready in the last of two slices wins",
			given: func(s *setting) { s.endpoints(failing, "far-1"); s.addSlice("web-zzz", "far-1", ready) },
			want:  []string{"pod-2 > cluster:80 = forward far-1"},
		}, {
			name:  "serving and terminating wins over neither",
			given: func(s *setting) { s.endpoints(failing, "far-1"); s.addSlice("web-zzz", "far-1", leaving) },
			want:  []string{"pod-2 > cluster:80 = forward far-1"},
		},
	})
}

func TestLocalPool(t *testing.T) {
	bothLocal := func(change func(*setting)) func(*setting) {
		return func(s *setting) {
			s.web.InternalPolicy, s.web.ExternalPolicy = model.PolicyLocal, model.PolicyLocal
			change(s)
		}
	}
	play(t, []scenario{
		{
			name:  "internal policy Local is for everybody",
			given: func(s *setting) { s.web.InternalPolicy = model.PolicyLocal },
			want: []string{
				"pod-2 > cluster:80 = forward pod-1", "node > cluster:80 = forward pod-1*",
				"far-2 > cluster:80 = forward pod-1", "outside > cluster:80 = forward pod-1*",
				"outside > external:80 = forward pod-1* far-1*",
			},
		}, {
			name:  "external policy Local is for those outside",
			given: func(s *setting) { s.web.ExternalPolicy = model.PolicyLocal },
			want: []string{
				"outside > external:80 = forward pod-1", "outside > lb:80 = forward pod-1", "outside > node:30080 = forward pod-1",
				"pod-2 > external:80 = forward pod-1 far-1", "pod-2 > lb:80 = forward pod-1 far-1",
				"node > lb:80 = forward pod-1* far-1*", "node > node:30080 = forward pod-1* far-1*",
				"outside > cluster:80 = forward pod-1* far-1*", "pod-2 > cluster:80 = forward pod-1 far-1",
			},
		}, {
			name:  "no ready endpoint here: local ones serving and terminating",
			given: bothLocal(func(s *setting) { s.endpoints(leaving, "pod-1"); s.add("far-1", ready) }),
			want: []string{
				"outside > lb:80 = forward pod-1", "pod-2 > cluster:80 = forward pod-1",
				"pod-2 > lb:80 = forward far-1",
			},
		}, {
			name:  "endpoints exist but none here: those outside are dropped, short-circuited ones served",
			given: bothLocal(func(s *setting) { s.endpoints(ready, "far-1"); s.add("pod-1", failing) }),
			want: []string{
				"outside > lb:80 = drop", "outside > external:80 = drop", "outside > node:30080 = drop",
				"pod-2 > cluster:80 = drop", "node > cluster:80 = drop",
				"pod-2 > lb:80 = forward far-1", "node > node:30080 = forward far-1*",
			},
		}, {
			name:  "an endpoint elsewhere that serves while terminating exists",
			given: bothLocal(func(s *setting) { s.endpoints(leaving, "far-1") }),
			want:  []string{"outside > lb:80 = drop", "pod-2 > cluster:80 = drop", "pod-2 > lb:80 = forward far-1"},
		}, {
			name:  "an endpoint elsewhere that can serve nobody does not",
			given: bothLocal(func(s *setting) { s.endpoints(failing, "far-1"); s.add("far-2", unready) }),
			want:  []string{"outside > lb:80 = reject", "pod-2 > cluster:80 = reject", "node > lb:80 = reject"},
		}, {
			name:  "no endpoint anywhere: everybody is rejected",
			given: bothLocal(func(s *setting) { s.slice.Endpoints = nil }),
			want: []string{
				"outside > lb:80 = reject", "outside > external:80 = reject", "outside > node:30080 = reject",
				"pod-2 > cluster:80 = reject", "outside > cluster:80 = reject",
			},
		}, {
			name:  "an endpoint whose node is not known is not here",
			given: bothLocal(func(s *setting) { s.endpoints(ready, "pod-1"); s.slice.Endpoints[0].Node = "" }),
			want:  []string{"outside > lb:80 = drop"},
		}, {
			name: "a node without a name has no endpoints",
			given: bothLocal(func(s *setting) {
				s.endpoints(ready, "pod-1")
				s.slice.Endpoints[0].Node, s.Config.NodeName = "", ""
			}),
			want: []string{"outside > lb:80 = drop"},
		}, {
			name: "hints do not apply to it",
			given: bothLocal(func(s *setting) {
				s.endpoints(ready, "pod-1", "pod-2", "far-1")
				for i, node := range []string{farNode, thisNode, thisNode} {
					s.slice.Endpoints[i].Hints = &model.Hints{Nodes: []string{node}}
				}
			}),
			want: []string{
				"outside > lb:80 = forward pod-1 pod-2", "far-2 > cluster:80 = forward pod-1 pod-2",
				"far-2 > lb:80 = forward pod-2 far-1",
			},
		},
	})
}

func TestRejectWithoutEndpoints(t *testing.T) {
	play(t, []scenario{{
		name:  "every frontend of a Service without endpoints rejects",
		given: func(s *setting) { s.slice.Endpoints = nil },
		want: []string{
			"pod-2 > cluster:80 = reject", "outside > external:80 = reject",
			"outside > lb:80 = reject", "outside > node:30080 = reject",
		},
	}, {
		name:  "a Service without slices too",
		given: func(s *setting) { s.Slices = nil },
		want:  []string{"pod-2 > cluster:80 = reject", "outside > node:30080 = reject"},
	}})
}

// Hints for this node, the other one, this node's zone and another one.
var (
	mine  = &model.Hints{Nodes: []string{thisNode}}
	yours = &model.Hints{Nodes: []string{farNode}}
	near  = &model.Hints{Zones: []string{"here"}}
	far   = &model.Hints{Zones: []string{"there"}}
)

// hinted gives web the endpoints pod-1, far-1, far-2 with these hints, on a
// node in zone "here".
func hinted(hints ...*model.Hints) func(*setting) {
	return func(s *setting) {
		s.Node.Zone = "here"
		s.endpoints(ready, "pod-1", "far-1", "far-2")
		for i, h := range hints {
			s.slice.Endpoints[i].Hints = h
		}
	}
}

const allOfThem = "pod-2 > cluster:80 = forward pod-1 far-1 far-2"

func TestTopologyByNode(t *testing.T) {
	play(t, []scenario{
		{
			name:  "node hints keep the endpoints for this node",
			given: hinted(yours, mine, &model.Hints{Nodes: []string{farNode, thisNode}}),
			want: []string{
				"pod-2 > cluster:80 = forward far-1 far-2",
				"outside > lb:80 = forward far-1* far-2*",
				"outside > node:30080 = forward far-1* far-2*",
			},
		}, {
			name:  "node hints are used only if every endpoint has one",
			given: hinted(nil, mine, yours),
			want:  []string{allOfThem},
		}, {
			name:  "node hints are used only if one names this node",
			given: hinted(yours, yours, yours),
			want:  []string{allOfThem},
		}, {
			name: "endpoints that are not ready have no say",
			given: func(s *setting) {
				hinted(mine, yours, nil)(s)
				s.slice.Endpoints[2].Conditions = leaving
			},
			want: []string{"pod-2 > cluster:80 = forward pod-1"},
		}, {
			name: "hints do not apply to serving and terminating endpoints",
			given: func(s *setting) {
				hinted(mine, yours, yours)(s)
				for i := range s.slice.Endpoints {
					s.slice.Endpoints[i].Conditions = leaving
				}
			},
			want: []string{allOfThem},
		}, {
			name:  "clients short-circuited under policy Local follow hints too",
			given: func(s *setting) { hinted(yours, mine, yours)(s); s.web.ExternalPolicy = model.PolicyLocal },
			want: []string{
				"pod-2 > lb:80 = forward far-1", "node > lb:80 = forward far-1*", "outside > lb:80 = forward pod-1",
			},
		},
	})
}

func TestTopologyByZone(t *testing.T) {
	both := func(node, zone *model.Hints) *model.Hints {
		return &model.Hints{Nodes: node.Nodes, Zones: zone.Zones}
	}
	play(t, []scenario{
		{
			name:  "zone hints keep the endpoints for this zone",
			given: hinted(near, far, &model.Hints{Zones: []string{"there", "here"}}),
			want:  []string{"pod-2 > cluster:80 = forward pod-1 far-2", "outside > lb:80 = forward pod-1* far-2*"},
		}, {
			name:  "zone hints are used only if every endpoint has one",
			given: hinted(near, far, nil),
			want:  []string{allOfThem},
		}, {
			name:  "empty hints are no hints",
			given: hinted(near, far, &model.Hints{}),
			want:  []string{allOfThem},
		}, {
			name:  "zone hints are used only if one names this zone",
			given: hinted(far, far, far),
			want:  []string{allOfThem},
		}, {
			name:  "zone hints need a zone of the node",
			given: func(s *setting) { hinted(near, far, far)(s); s.Node.Zone = "" },
			want:  []string{allOfThem},
		}, {
			name: "a hint with an empty zone does not match a node without one",
			given: func(s *setting) {
				hinted(&model.Hints{Zones: []string{""}}, far, far)(s)
				s.Node.Zone = ""
			},
			want: []string{allOfThem},
		}, {
			name:  "zone hints need a node",
			given: func(s *setting) { hinted(near, far, far)(s); s.Node = nil },
			want:  []string{allOfThem},
		}, {
			name:  "node hints go before zone hints",
			given: hinted(both(yours, near), both(mine, far), both(yours, near)),
			want:  []string{"pod-2 > cluster:80 = forward far-1"},
		}, {
			name:  "zone hints where node hints do not help",
			given: hinted(both(yours, near), both(yours, far), near),
			want:  []string{"pod-2 > cluster:80 = forward pod-1 far-2"},
		},
	})
}
