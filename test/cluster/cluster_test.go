package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sluice/internal/testkit"
	"sluice/test/cluster/apiserver"
	"sluice/test/lab"
)

func TestObjectsBecomePackets(t *testing.T) {
	s := start(t)
	web := s.create("web")
	s.expect("a Service without endpoints", refused(clusterFlows(web)))
	s.setPods("web", "pod1")
	s.expect("its first endpoint", answered(clusterFlows(web), "pod1"))
	s.setPods("web", "remote1", "remote2")
	s.expect("other endpoints", answered(clusterFlows(web), "remote1", "remote2"))
	s.setPods("web")
	s.expect("no endpoints again", refused(clusterFlows(web)))
	s.setPods("web", "pod3")
	s.expect("an endpoint again", answered(clusterFlows(web), "pod3"))
	s.delete("web")
	s.expect("the Service deleted", s.gone(clusterFlows(web)))
}

func TestPodsReachTheAPIServerByItsService(t *testing.T) {
	s := start(t)
	s.dig(controlPlane, netip.AddrPortFrom(s.host(controlPlane).Addrs[0], s.server.Addr().Port()))
	own, err := s.services().Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := s.server.Config(apiserver.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config.Host = "https://" + own.Spec.ClusterIP
	config.Dial = func(ctx context.Context, network, address string) (c net.Conn, err error) {
		dialer := net.Dialer{Timeout: testkit.Scaled(lab.DefaultTimeout)}
		err = s.host("pod1").Do(func() (err error) {
			c, err = dialer.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	fromPod, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("a pod asks the API server", func(ctx context.Context) error {
		_, err := fromPod.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
		return err
	})
}

// TestServiceProblemsAreEvents lets a Service claim an address that
// another one has, first without endpoints on this node: then other nodes report it.
func TestServiceProblemsAreEvents(t *testing.T) {
	s := start(t)
	claim := func(name string) *corev1.Service {
		service := s.create(name, "remote1")
		service.Spec.ExternalIPs = []string{"198.51.100.80"}
		claimed, err := s.services().Update(t.Context(), service, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claimed
	}
	claim("first")
	second := claim("second")
	s.eventually("the proxy finds out that the address is taken", func(context.Context) error {
		return s.proxy.Logged("default/second")
	})
	s.setPods("first", "pod1") // and has finished this by the time it reports
	s.expect("changes continue", answered(clusterFlows(second), "remote1"))
	if events, err := s.eventsOn(t.Context(), second); err != nil || len(events) > 0 {
		t.Errorf("a node that has no part in the Service says %v, %v", events, err)
	}
	s.setPods("second", "pod1")
	s.eventually("a node with an endpoint reports that the address is taken", func(ctx context.Context) error {
		events, err := s.eventsOn(ctx, second)
		if err == nil && len(events) == 0 {
			err = errors.New("there is no Event on it")
		}
		return err
	})
}

// eventsOn returns the Events of proxies on a Service by its UID, as kubectl describe does. The API server itself may
// have some about its ClusterIP.
func (s *site) eventsOn(ctx context.Context, service *corev1.Service) ([]corev1.Event, error) {
	events, err := s.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Service,involvedObject.uid=" + string(service.UID),
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return e.ReportingController != "kube-proxy" }), nil
}

func TestBurstOfServicesIsProgrammed(t *testing.T) {
	const count, creators = 1000, 16
	s := start(t)
	slice := s.newSlices("burst", "pod1")[0]
	created := make([]*corev1.Service, count)
	inParallel(creators, count, func(i int) {
		service, slice := newService(fmt.Sprintf("burst-%d", i)), slice.DeepCopy()
		service.Spec.IPFamilyPolicy = nil
		slice.Name, slice.Labels[discoveryv1.LabelServiceName] = service.Name, service.Name
		_, err := s.client.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice, metav1.CreateOptions{})
		if err == nil {
			created[i], err = s.services().Create(t.Context(), service, metav1.CreateOptions{})
		}
		if err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	var flows []lab.Flow
	for _, service := range created {
		flows = append(flows, clusterFlows(service)[0])
	}
	s.expect("all Services", answered(flows, "pod1"))
}

// inParallel calls f for every number below count, from several goroutines.
func inParallel(workers, count int, f func(int)) {
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < count; i += workers {
				f(i)
			}
		})
	}
	all.Wait()
}
