package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"sluice/test/cluster/apiserver"
	"sluice/test/lab"
)

const (
	namespace   = metav1.NamespaceDefault
	servicePort = 80
	echoPort    = 8080 // of the pods of a lab
	ratePort    = 8000 // of the server that is for rates only
)

// cluster is an API server with many Services. Some of them, which are spread among the
// others, are watched: they have endpoints that answer.
type cluster struct {
	server              *apiserver.Server
	client              kubernetes.Interface
	services, endpoints int
}

// watchedServices is how many Services have endpoints that answer.
const watchedServices = 20

// The pods behind the watched Services: either these or those.
var generations = [2][]string{{"10.244.1.1", "10.244.2.1"}, {"10.244.1.2", "10.244.2.2"}}

// answerers are the names of the pods of a generation.
var answerers = [2][]string{{"pod1", "remote1"}, {"pod2", "remote2"}}

// rateService is the last Service, for rates.
const rateService = "rate"

var rateIP = netip.MustParseAddr("10.96.255.1")

func newCluster(ctx context.Context, binaries apiserver.Binaries, services, endpoints int) (*cluster, error) {
	c := &cluster{services: services, endpoints: endpoints}
	var err error
	c.server, err = apiserver.Start(ctx, apiserver.Options{
		Binaries: binaries, ServiceCIDRs: lab.ServiceCIDRs[:], Advertise: netip.MustParseAddr("192.0.2.20")})
	if err != nil {
		return nil, err
	}
	config, err := c.server.Config(apiserver.Admin)
	if err == nil {
		config.QPS = -1
		c.client, err = kubernetes.NewForConfig(config)
	}
	if err == nil {
		err = c.populate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) close() error { return c.server.Close() }

// populate creates all objects.
func (c *cluster) populate(ctx context.Context) error {
	for name, addresses := range map[string][]string{"node1": {"192.0.2.10", "2001:db8::10"}, "node2": {"192.0.2.20", "2001:db8::20"}} {
		node, err := c.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for _, a := range addresses {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		if _, err := c.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if err := c.inParallel(ctx, c.services, c.create); err != nil {
		return err
	}
	slice := c.slice(rateService, ratePort, generations[0][:1])
	return c.createService(ctx, rateService, rateIP, slice)
}

// inParallel calls the API server for 0 to n-1.
func (c *cluster) inParallel(ctx context.Context, n int, call func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range n {
		group.Go(func() error { return call(ctx, i) })
	}
	return group.Wait()
}

func (c *cluster) create(ctx context.Context, i int) error {
	addresses := generations[0]
	if !c.isWatched(i) {
		addresses = nil
		for e := range c.endpoints {
			addresses = append(addresses, podIP(i*c.endpoints+e).String())
		}
	}
	return c.createService(ctx, name(i), clusterIP(i), c.slice(name(i), echoPort, addresses))
}

func (c *cluster) createService(ctx context.Context, name string, ip netip.Addr, slice *discoveryv1.EndpointSlice) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.ServiceSpec{ClusterIP: ip.String(), Ports: []corev1.ServicePort{{Port: servicePort}}}}
	if _, err := c.client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{})
	return err
}

// update replaces the endpoints of a Service.
func (c *cluster) update(ctx context.Context, i int, addresses []string) error {
	_, err := c.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, c.slice(name(i), echoPort, addresses), metav1.UpdateOptions{})
	return err
}

func (c *cluster) slice(service string, port int32, addresses []string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(port)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: ptr.To("node2")})
	}
	return s
}

// watched returns the watched Services, the first and the last among them.
func (c *cluster) watched() []int {
	n := min(watchedServices, c.services)
	out := []int{c.services - 1}
	for i := range n - 1 {
		out = append(out, i*(c.services-1)/(n-1))
	}
	return out
}

func (c *cluster) isWatched(i int) bool {
	for _, w := range c.watched() {
		if w == i {
			return true
		}
	}
	return false
}

func name(i int) string { return "s" + strconv.Itoa(i) }

func clusterIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)})
}

// podIP returns addresses that no host of a lab has.
func podIP(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 128 | byte(n>>16), byte(n >> 8), byte(n)})
}

// to returns where a watched Service is found.
func to(i int) netip.AddrPort { return netip.AddrPortFrom(clusterIP(i), servicePort) }

// maxServices is how many addresses clusterIP has.
const maxServices = 250 * 250

// check refuses sizes that cannot be made.
func check(services, endpoints int) error {
	switch {
	case services < 2 || services > maxServices:
		return fmt.Errorf("%d Services: use 2 to %d", services, maxServices)
	case endpoints < 1 || services*endpoints > 1<<23:
		return fmt.Errorf("%d endpoints: use 1 to %d with that many Services", endpoints, 1<<23/services)
	}
	return nil
}
