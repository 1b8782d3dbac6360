package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

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
	namespace    = metav1.NamespaceDefault
	servicePort  = 80
	echoPort     = 8080 // of the pods of a lab
	maxServices  = 250 * 250
	maxEndpoints = 100 // of one slice
)

// cluster is an API server with many Services.
type cluster struct {
	options
	server     *apiserver.Server
	client     kubernetes.Interface
	kubeconfig string // with the rights of a kube-proxy
	changes    changes
}

func newCluster(ctx context.Context, binaries apiserver.Binaries, o options) (*cluster, error) {
	c := &cluster{options: o}
	var err error
	c.server, err = apiserver.Start(ctx, apiserver.Options{
		Binaries: binaries, ServiceCIDRs: lab.ServiceCIDRs[:], Advertise: netip.MustParseAddr("192.0.2.20")})
	if err != nil {
		return nil, err
	}
	config, err := c.server.Config(apiserver.Admin)
	if err == nil {
		c.client, err = kubernetes.NewForConfig(config)
	}
	if err == nil {
		c.kubeconfig, err = c.server.Kubeconfig(apiserver.KubeProxy)
	}
	if err == nil {
		err = c.inParallel(ctx, c.services, func(ctx context.Context, i int) error {
			return c.createService(ctx, i, c.addressesOf(i))
		})
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) close() error { return c.server.Close() }

// inParallel calls the API server for 0 to n-1.
func (c *cluster) inParallel(ctx context.Context, n int, call func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return call(ctx, i) })
	}
	return group.Wait()
}

func (c *cluster) addressesOf(i int) (out []string) {
	for e := range c.endpoints {
		n := i*c.endpoints + e
		out = append(out, netip.AddrFrom4([4]byte{10, 128 | byte(n>>16), byte(n >> 8), byte(n)}).String())
	}
	return out
}

func (c *cluster) createService(ctx context.Context, i int, addresses []string) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName(i), Namespace: namespace, Labels: map[string]string{"app": serviceName(i)}},
		Spec: corev1.ServiceSpec{ClusterIP: clusterIP(i).String(), Selector: map[string]string{"app": serviceName(i)},
			Ports: []corev1.ServicePort{{Port: servicePort}}}}
	if _, err := c.client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice(i, addresses), metav1.CreateOptions{})
	return err
}

// createNode creates the Node of a name, unless it is there.
func (c *cluster) createNode(ctx context.Context, name string, addresses ...string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err == nil {
		return nil
	}
	node, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, a := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	_, err = c.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// update replaces the endpoints of a Service.
func (c *cluster) update(ctx context.Context, i int, addresses []string) error {
	_, err := c.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, slice(i, addresses), metav1.UpdateOptions{})
	return err
}

// slice is as the controller makes it, with a reference to each pod.
func slice(i int, addresses []string) *discoveryv1.EndpointSlice {
	name := serviceName(i)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{
			discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": name},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339)}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(echoPort))}},
	}
	for n, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, NodeName: ptr.To("node" + strconv.Itoa(n%100)), Zone: ptr.To("zone-a"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("%s-7c5b89f8d-%05d", name, n), UID: "8b4f3f0e-5f4d-4c52-9d0e-2f1d3a6f7b21"},
		})
	}
	return s
}

func serviceName(i int) string { return "s" + strconv.Itoa(i) }

func clusterIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)})
}

// serviceAddr is where a Service is found.
func serviceAddr(i int) netip.AddrPort { return netip.AddrPortFrom(clusterIP(i), servicePort) }
