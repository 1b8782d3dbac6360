//lint:file-ignore SA1019 Endpoints is deprecated, and all that some servers have.

package kubernetes

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"

	"sluice/internal/model"
	"sluice/internal/source"
)

const (
	// The server leaves out what is not for this proxy, which saves
	// bandwidth and decoding.
	notOfAnotherProxy = "!" + source.LabelServiceProxyName
	notHeadless       = "!" + v1.IsHeadlessService
	hasClusterIP      = "spec.clusterIP!=" + v1.ClusterIPNone
)

// kind is something to follow.
type kind struct {
	name string
	apis []*api // in order of preference
	// optional says that the proxy works without it.
	optional bool
}

// denied reports whether the error of a request only means that the next API
// has to be used, or none at all. Servers are not asked beforehand what they
// have: the role system:node-proxier allows no discovery.
func (k *kind) denied(a *api, err error) bool {
	last := k.apis[len(k.apis)-1]
	return apierrors.IsNotFound(err) && (k.optional || a != last) || apierrors.IsForbidden(err) && k.optional
}

// api is one resource of one version by which a kind can be requested.
type api struct {
	groupVersion, resource string
	labels, fields         string // selectors
	only                   string // name of the object that is used, should a server send others; "" for all

	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	convert func(runtime.Object) ([]model.Event, error)
}

// client is a client-go client of one resource, whose lists are of type L.
type client[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// kindsOf returns what a proxy follows. Of EndpointSlices, one with a name also follows those of
// other proxies' Services: it must know them when a Service gets its label, and not every slice has
// a copy of it.
func kindsOf(c clientset.Interface, proxy source.Proxy) []*kind {
	services := newAPI[*v1.Service](proxy, "v1", "services", c.CoreV1().Services(""))
	services.fields = hasClusterIP
	if proxy.ServiceProxyName == "" { // otherwise it must learn of Services that become others'
		services.labels = notOfAnotherProxy
	}
	slices := newAPI[*discoveryv1.EndpointSlice](proxy, "discovery.k8s.io/v1", "endpointslices", c.DiscoveryV1().EndpointSlices(""))
	slices.labels = notHeadless
	endpoints := newAPI[*v1.Endpoints](proxy, "v1", "endpoints", c.CoreV1().Endpoints(""))
	endpoints.labels = notHeadless
	nodes := newAPI[*v1.Node](proxy, "v1", "nodes", c.CoreV1().Nodes())
	if !proxy.AllNodes {
		nodes.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, proxy.NodeName).String()
		nodes.only = proxy.NodeName
	}

	kinds := []*kind{
		{name: "Service", apis: []*api{services}},
		{name: "EndpointSlice", apis: []*api{slices, endpoints}},
		{name: "Node", apis: []*api{nodes}},
	}
	if proxy.Beside() {
		return kinds
	}
	return append(kinds, &kind{
		name: "ServiceCIDR", optional: true, apis: []*api{
			newAPI[*networkingv1.ServiceCIDR](proxy, "networking.k8s.io/v1", "servicecidrs", c.NetworkingV1().ServiceCIDRs()),
			newAPI[*networkingv1beta1.ServiceCIDR](proxy, "networking.k8s.io/v1beta1", "servicecidrs", c.NetworkingV1beta1().ServiceCIDRs()),
		}})
}

func newAPI[O metav1.Object, L runtime.Object](proxy source.Proxy, groupVersion, resource string, c client[L]) *api {
	a := &api{
		groupVersion: groupVersion,
		resource:     resource,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return c.List(ctx, options)
		},
		watch: c.Watch,
	}
	a.convert = func(obj runtime.Object) ([]model.Event, error) {
		o, ok := obj.(O)
		switch {
		case !ok:
			return nil, fmt.Errorf("the server sent a %T among %s of %s", obj, resource, groupVersion)
		case a.only != "" && o.GetName() != a.only:
			return nil, nil
		}
		return proxy.Events(o), nil
	}
	return a
}

func (a *api) selecting(options metav1.ListOptions) metav1.ListOptions {
	options.LabelSelector, options.FieldSelector = a.labels, a.fields
	return options
}
