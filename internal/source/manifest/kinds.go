package manifest

import (
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice/internal/model"
	"sluice/internal/source"
)

// kind is a kind of object that is used: the versions it can be written in,
// which have the same fields, and how an object of it is decoded.
type kind struct {
	versions []string
	decode   func(*decoder, *item)
}

var kinds = map[string]kind{
	"Service":       {[]string{"v1"}, converts(validation.IsDNS1123Label, convertService)},
	"Endpoints":     {[]string{"v1"}, converts(validation.IsDNS1123Subdomain, convertEndpoints)},
	"EndpointSlice": {[]string{"discovery.k8s.io/v1"}, converts(validation.IsDNS1123Subdomain, convertSlice)},
	"Node":          {[]string{"v1"}, converts(validation.IsDNS1123Subdomain, convertNode)},
	"ServiceCIDR":   {[]string{"networking.k8s.io/v1", "networking.k8s.io/v1beta1"}, converts(validation.IsDNS1123Subdomain, convertServiceCIDR)},
}

// used is what an object is converted to: nothing, if it is not for this proxy.
type used struct {
	events   []model.Event
	problems []model.Problem
}

// converts returns how to decode the objects of a type, which are checked by a rule
// for their names, and for what convert finds.
func converts[T any, P interface {
	*T
	metav1.Object
}](names func(string) []string, convert func(d *decoder, c checker, object P) used) func(*decoder, *item) {
	return func(d *decoder, it *item) {
		object := P(new(T))
		if !d.parse(it, object) {
			return
		}
		object.SetNamespace(it.name().Namespace)
		check := d.check(it)
		check.meta(object, names)
		use := convert(d, check, object)
		d.use(it, use.events, append(check.List(), use.problems...))
	}
}

func convertService(_ *decoder, c checker, svc *v1.Service) (use used) {
	value, ok := source.Service(svc)
	if ok {
		use = used{[]model.Event{model.SetService{Service: value}}, value.Problems}
	}
	c.service(svc, value)
	return use
}

func convertSlice(_ *decoder, c checker, slice *discoveryv1.EndpointSlice) used {
	c.slice(slice)
	value, ok := source.Slice(slice)
	if !ok {
		return used{}
	}
	return used{[]model.Event{model.SetSlice{Slice: value}}, value.Problems}
}

//lint:ignore SA1019 Endpoints is deprecated, and manifests still hold it.
func convertEndpoints(_ *decoder, c checker, endpoints *v1.Endpoints) (use used) {
	for i := range endpoints.Subsets {
		c.subsetPorts(i, endpoints.Subsets[i].Ports)
	}
	for _, value := range source.SlicesOfEndpoints(endpoints) {
		use.events = append(use.events, model.SetSlice{Slice: value})
		use.problems = append(use.problems, value.Problems...)
	}
	return use
}

// convertNode leaves the Nodes of other machines alone.
func convertNode(d *decoder, _ checker, node *v1.Node) used {
	if node.Name != d.nodeName {
		return used{}
	}
	value := source.Node(node)
	return used{[]model.Event{model.SetNode{Node: value}}, value.Problems}
}

func convertServiceCIDR(_ *decoder, c checker, cidr *networkingv1.ServiceCIDR) used {
	value := source.ServiceCIDR(cidr)
	c.serviceCIDR(value)
	return used{[]model.Event{model.SetServiceCIDR{ServiceCIDR: value}}, value.Problems}
}

// dispatch decodes an object by its kind.
func (d *decoder) dispatch(it *item) {
	element, isList := strings.CutSuffix(it.Kind, "List")
	k, used := kinds[it.Kind]
	listed, usedInList := kinds[element]
	switch {
	case used && slices.Contains(k.versions, it.APIVersion):
		k.decode(d, it)
	case used && !foreign(it.APIVersion):
		d.wrongVersion(it, k.versions)
	case it.Kind == "List" && it.APIVersion == "v1":
		d.list(it, head{})
	case isList && usedInList && slices.Contains(listed.versions, it.APIVersion):
		d.list(it, head{APIVersion: it.APIVersion, Kind: element})
	case isList && usedInList && !foreign(it.APIVersion):
		d.wrongVersion(it, listed.versions)
	default:
		d.skip(it.Kind, 1)
	}
}

// foreign tells whether a version is of an API group outside Kubernetes, where
// a kind's name can mean something else.
func foreign(apiVersion string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	return grouped && strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// list decodes the items of a list one by one, so that a bad one harms only
// itself.
func (d *decoder) list(it *item, defaults head) {
	if it.at != "" {
		d.refuse(it, "kind", "move its items to the outer list", "a list cannot be an item of a list")
		return
	}
	var list struct {
		metav1.TypeMeta `json:""`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if !d.parse(it, &list) {
		return
	}
	for i, raw := range list.Items {
		d.item(raw, itemPath(it.at, i), defaults)
	}
}
