//go:build guest

package ipvs

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice/test/fakeapi"
	"sluice/test/lab"
)

// BenchmarkColdStart measures how long upstream's kube-proxy and ours take in ipvs mode
// from their start until all Services are served, and their memory afterwards. Emulated
// guests live in a time of their own, a nanosecond for each instruction.
func BenchmarkColdStart(b *testing.B) {
	for _, services := range []int{1000, 10_000} {
		for _, binary := range []string{upstreamBinary, ownBinary} {
			b.Run(fmt.Sprintf("%s/%dx2", binary, services), func(b *testing.B) {
				for range b.N {
					n := newNode(b)
					n.publishMany(services)
					begin := time.Now()
					n.start(binary, "ipvs")
					n.awaitServers(services)
					b.ReportMetric(time.Since(begin).Seconds(), "start-s")
					b.ReportMetric(n.memory("VmRSS:"), "steady-MB")
					b.ReportMetric(n.memory("VmHWM:"), "peak-MB")
				}
			})
		}
	}
}

// manyIP is the ClusterIP of one of many Services.
func manyIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)})
}

// publishMany publishes IPv4 Services with two endpoints each.
func (n *node) publishMany(services int) {
	n.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	for _, a := range n.host("node1").Addrs {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	objects := []fakeapi.Object{node}
	for i := range services {
		meta := metav1.ObjectMeta{Name: fmt.Sprint("s", i), Namespace: metav1.NamespaceDefault}
		ip := manyIP(i).String()
		objects = append(objects, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: port}},
		}})
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](targetPort)}}}
		for _, pod := range []string{"pod1", "remote1"} {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{n.host(pod).Addrs[0].String()}, NodeName: ptr.To(n.host(pod).Node),
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
		}
		objects = append(objects, slice)
	}
	if err := n.server.Set(objects); err != nil {
		n.Fatal(err)
	}
}

// awaitServers waits until so many virtual services have two destinations each, and the
// first and the last one answer.
func (n *node) awaitServers(services int) {
	n.Helper()
	n.eventually("virtual services", func() error {
		var list []byte
		if err := n.host("node1").Do(func() (err error) {
			list, err = os.ReadFile("/proc/thread-self/net/ip_vs")
			return err
		}); err != nil {
			return err
		}
		// The title has an arrow as well.
		if got := bytes.Count(list, []byte("\n  -> ")) - 1; got < 2*services {
			return fmt.Errorf("%d of %d destinations", got, 2*services)
		}
		return nil
	})
	for _, i := range []int{0, services - 1} {
		n.eventually("answers", func() error {
			f := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.AddrPortFrom(manyIP(i), port)}
			if o := n.lab.Connect(n.Context(), f); o.Kind != lab.Answered {
				return fmt.Errorf("%v: %v", f, o)
			}
			return nil
		})
	}
}

// memory returns the kube-proxy's memory in MB.
func (n *node) memory(key string) float64 {
	n.Helper()
	mb, err := n.proxy.Memory(key)
	if err != nil {
		n.Fatal(err)
	}
	return mb
}
