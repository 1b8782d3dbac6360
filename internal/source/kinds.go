package source

import (
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice/internal/model"
)

// Kind is a kind of object that a proxy uses, for sources that do not get their
// objects from an API server, which validates them.
type Kind struct {
	Versions []string // with the same fields
	New      func() metav1.Object
	// Convert validates an object and converts it to events, none if it is not for
	// the proxy.
	Convert func(object metav1.Object, to Proxy) ([]model.Event, []model.Problem)
}

// Kinds are the kinds that a proxy uses, by name.
var Kinds = map[string]Kind{
	"Service":       newKind("Service", validation.IsDNS1123Label, validator.service, "v1"),
	"Endpoints":     newKind("Endpoints", validation.IsDNS1123Subdomain, validator.endpoints, "v1"),
	"EndpointSlice": newKind("EndpointSlice", validation.IsDNS1123Subdomain, validator.slice, "discovery.k8s.io/v1"),
	"Node":          newKind("Node", validation.IsDNS1123Subdomain, validator.node, "v1"),
	"ServiceCIDR":   newKind("ServiceCIDR", validation.IsDNS1123Subdomain, validator.serviceCIDR, "networking.k8s.io/v1", "networking.k8s.io/v1beta1"),
}

// newKind returns a kind with a rule for the names of its objects, and a check of what their
// conversion to events does not look at.
func newKind[T any, P interface {
	*T
	metav1.Object
}](kind string, names func(string) []string, check func(validator, P, []model.Event), versions ...string) Kind {
	return Kind{
		Versions: versions,
		New:      func() metav1.Object { return P(new(T)) },
		Convert: func(object metav1.Object, to Proxy) ([]model.Event, []model.Problem) {
			v := validator{NewReport(model.Object{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()})}
			v.meta(object, names)
			if kind == "Node" && object.GetName() != to.NodeName && !to.AllNodes {
				return nil, v.List()
			}
			events := to.Events(object)
			check(v, object.(P), events)
			return events, append(v.List(), problemsOf(events)...)
		},
	}
}

// Events converts an object of the API to the events that set what it means to a proxy, none
// if it is not for this one. It does not look at what an API server refuses.
func (p Proxy) Events(object any) (events []model.Event) {
	switch in := object.(type) {
	case *v1.Service:
		return p.service(in)
	case *discoveryv1.EndpointSlice:
		if slice, ok := Slice(in); ok {
			events = append(events, model.SetSlice{Slice: slice})
		}
	//lint:ignore SA1019 Endpoints is deprecated, and all that some servers and manifests have.
	case *v1.Endpoints:
		for _, slice := range SlicesOfEndpoints(in) {
			events = append(events, model.SetSlice{Slice: slice})
		}
	case *v1.Node:
		if p.AllNodes && in.Name != p.NodeName {
			return []model.Event{model.SetPeer{Peer: Peer(in)}}
		}
		events = append(events, model.SetNode{Node: Node(in)})
	case *networkingv1.ServiceCIDR:
		if !p.Beside() { // addresses that it does not know may be those of Services of others
			events = append(events, model.SetServiceCIDR{ServiceCIDR: ServiceCIDR(in)})
		}
	case *networkingv1beta1.ServiceCIDR:
		return p.Events(&networkingv1.ServiceCIDR{ObjectMeta: in.ObjectMeta, Spec: networkingv1.ServiceCIDRSpec{CIDRs: in.Spec.CIDRs}})
	}
	return events
}

// problemsOf returns the problems of the values that events set.
func problemsOf(events []model.Event) (all []model.Problem) {
	for _, e := range events {
		switch e := e.(type) {
		case model.SetService:
			all = append(all, e.Problems...)
		case model.SetSlice:
			all = append(all, e.Problems...)
		case model.SetNode:
			all = append(all, e.Problems...)
		case model.SetServiceCIDR:
			all = append(all, e.Problems...)
		}
	}
	return all
}
