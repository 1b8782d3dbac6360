package source

import (
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
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
	// this proxy. Of Nodes, only nodeName is.
	Convert func(object metav1.Object, nodeName string) ([]model.Event, []model.Problem)
}

// Kinds are the kinds that a proxy uses, by name.
var Kinds = map[string]Kind{
	"Service":       newKind("Service", validation.IsDNS1123Label, convertService, "v1"),
	"Endpoints":     newKind("Endpoints", validation.IsDNS1123Subdomain, convertEndpoints, "v1"),
	"EndpointSlice": newKind("EndpointSlice", validation.IsDNS1123Subdomain, convertSlice, "discovery.k8s.io/v1"),
	"Node":          newKind("Node", validation.IsDNS1123Subdomain, convertNode, "v1"),
	"ServiceCIDR":   newKind("ServiceCIDR", validation.IsDNS1123Subdomain, convertServiceCIDR, "networking.k8s.io/v1", "networking.k8s.io/v1beta1"),
}

// newKind returns a kind with a rule for the names of its objects.
func newKind[T any, P interface {
	*T
	metav1.Object
}](kind string, names func(string) []string, convert func(v validator, object P) ([]model.Event, []model.Problem), versions ...string) Kind {
	return Kind{
		Versions: versions,
		New:      func() metav1.Object { return P(new(T)) },
		Convert: func(object metav1.Object, nodeName string) ([]model.Event, []model.Problem) {
			v := validator{NewReport(model.Object{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()})}
			v.meta(object, names)
			if kind == "Node" && object.GetName() != nodeName {
				return nil, v.List()
			}
			events, problems := convert(v, object.(P))
			return events, append(v.List(), problems...)
		},
	}
}

func convertService(v validator, in *v1.Service) ([]model.Event, []model.Problem) {
	service, ok := Service(in)
	v.service(in, service)
	if !ok {
		return nil, nil
	}
	return []model.Event{model.SetService{Service: service}}, service.Problems
}

func convertSlice(v validator, in *discoveryv1.EndpointSlice) ([]model.Event, []model.Problem) {
	v.slice(in)
	slice, ok := Slice(in)
	if !ok {
		return nil, nil
	}
	return []model.Event{model.SetSlice{Slice: slice}}, slice.Problems
}

//lint:ignore SA1019 Endpoints is deprecated, and manifests still hold it.
func convertEndpoints(v validator, in *v1.Endpoints) (events []model.Event, problems []model.Problem) {
	for i := range in.Subsets {
		v.subsetPorts(i, in.Subsets[i].Ports)
	}
	for _, slice := range SlicesOfEndpoints(in) {
		events = append(events, model.SetSlice{Slice: slice})
		problems = append(problems, slice.Problems...)
	}
	return events, problems
}

func convertNode(_ validator, in *v1.Node) ([]model.Event, []model.Problem) {
	node := Node(in)
	return []model.Event{model.SetNode{Node: node}}, node.Problems
}

func convertServiceCIDR(v validator, in *networkingv1.ServiceCIDR) ([]model.Event, []model.Problem) {
	cidr := ServiceCIDR(in)
	v.serviceCIDR(cidr)
	return []model.Event{model.SetServiceCIDR{ServiceCIDR: cidr}}, cidr.Problems
}
