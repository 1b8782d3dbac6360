package manifest

import (
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	"Service":       {[]string{"v1"}, (*decoder).service},
	"Endpoints":     {[]string{"v1"}, (*decoder).endpoints},
	"EndpointSlice": {[]string{"discovery.k8s.io/v1"}, (*decoder).slice},
	"Node":          {[]string{"v1"}, (*decoder).node},
	"ServiceCIDR":   {[]string{"networking.k8s.io/v1", "networking.k8s.io/v1beta1"}, (*decoder).serviceCIDR},
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
		d.check(it).add("kind", "move its items to the outer list", "a list cannot be an item of a list")
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

func (d *decoder) service(it *item) {
	svc := &v1.Service{}
	if !d.parse(it, svc) {
		return
	}
	svc.Namespace = it.name().Namespace
	if c := d.check(it); !c.service(svc) {
		return
	}
	if value, ok := source.Service(svc); ok {
		d.found(it, value.Problems, model.SetService{Service: value})
		return
	}
	d.found(it, nil)
}

func (d *decoder) slice(it *item) {
	slice := &discoveryv1.EndpointSlice{}
	if !d.parse(it, slice) {
		return
	}
	slice.Namespace = it.name().Namespace
	if c := d.check(it); !c.slice(slice) {
		return
	}
	if value, ok := source.Slice(slice); ok {
		d.found(it, value.Problems, model.SetSlice{Slice: value})
		return
	}
	d.found(it, nil)
}

func (d *decoder) endpoints(it *item) {
	//lint:ignore SA1019 Endpoints is deprecated, and manifests still hold it.
	endpoints := &v1.Endpoints{}
	if !d.parse(it, endpoints) {
		return
	}
	endpoints.Namespace = it.name().Namespace
	if c := d.check(it); !c.endpoints(endpoints) {
		return
	}
	var problems []model.Problem
	var events []model.Event
	for _, value := range source.SlicesOfEndpoints(endpoints) {
		problems = append(problems, value.Problems...)
		events = append(events, model.SetSlice{Slice: value})
	}
	d.found(it, problems, events...)
}

// node decodes a Node. Those of other machines are no concern of this one.
func (d *decoder) node(it *item) {
	node := &v1.Node{}
	if !d.parse(it, node) {
		return
	}
	if c := d.check(it); !c.node(node) {
		return
	}
	if node.Name != d.nodeName {
		d.found(it, nil)
		return
	}
	value := source.Node(node)
	d.found(it, value.Problems, model.SetNode{Node: value})
}

func (d *decoder) serviceCIDR(it *item) {
	cidr := &networkingv1.ServiceCIDR{}
	if !d.parse(it, cidr) {
		return
	}
	if c := d.check(it); !c.serviceCIDR(cidr) {
		return
	}
	value := source.ServiceCIDR(cidr)
	d.found(it, value.Problems, model.SetServiceCIDR{ServiceCIDR: value})
}
