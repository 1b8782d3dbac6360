package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"sluice/test/cluster/apiserver"
)

// BenchmarkScale measures the proxy against a real API server: how much memory
// it takes, and how long it is from an EndpointSlice that is written to the
// kernel's commit. Each size is measured once:
//
//	go test -run '^$' -bench Scale -benchtime 1x -timeout 30m .
func BenchmarkScale(b *testing.B) {
	for _, size := range []struct{ services, endpoints int }{{10_000, 2}, {5_000, 50}} {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			for range b.N {
				s := start(b)
				s.populate(size.services, size.endpoints)
				if err := s.proxy.Kill(); err != nil {
					b.Fatal(err)
				}
				s.proxy = s.startProxy()
				s.eventually("all Services are programmed", func(context.Context) error { return s.programmed(size.services) })
				b.ReportMetric(s.memory("VmRSS:"), "steady-MB")
				b.ReportMetric(s.memory("VmHWM:"), "peak-MB")
				took := s.changes(200, size.services)
				b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
				b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
			}
		})
	}
}

// fast returns a client without a rate limit.
func (s *site) fast() kubernetes.Interface {
	s.Helper()
	config, err := s.server.Config(apiserver.Admin)
	if err != nil {
		s.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// populate creates IPv4 Services with that many endpoints each, none of them on
// this node.
func (s *site) populate(services, endpoints int) {
	s.Helper()
	client := s.fast()
	group, ctx := errgroup.WithContext(s.Context())
	group.SetLimit(32)
	for i := range services {
		group.Go(func() error {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: scaleName(i), Namespace: namespace},
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: servicePort}}}}
			if _, err := client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
				return err
			}
			_, err := client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, scaleSlice(i, endpoints, 0), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.Fatal(err)
	}
}

func scaleName(i int) string { return "scale-" + strconv.Itoa(i) }

// scaleSlice has the endpoints of a Service; another turn replaces the last.
func scaleSlice(i, endpoints, turn int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: scaleName(i), Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: scaleName(i)}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](targetPort)}},
	}
	for e := range endpoints {
		n := uint32(i*endpoints + e)
		if e == endpoints-1 && turn > 0 {
			n = 1<<23 + uint32(turn)
		}
		ip := netip.AddrFrom4([4]byte{10, 128 | byte(n>>16), byte(n >> 8), byte(n)})
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip.String()}, NodeName: ptr.To("elsewhere")})
	}
	return slice
}

// programmed returns what is missing until that many Services are in the kernel.
func (s *site) programmed(services int) error {
	text, err := os.ReadFile(s.proxy.Log)
	if err != nil {
		return err
	}
	set := 0
	for line := range bytes.Lines(text) {
		_, rest, found := strings.Cut(string(line), `"Programmed"`)
		if !found {
			continue
		}
		_, count, _ := strings.Cut(rest, " set=")
		n, err := strconv.Atoi(strings.Fields(count + " ?")[0])
		if err != nil {
			return err
		}
		set += n
	}
	if set < services {
		return fmt.Errorf("%d of %d", set, services)
	}
	return nil
}

// memory returns the kube-proxy's memory in MB.
func (s *site) memory(key string) float64 {
	s.Helper()
	mb, err := s.proxy.Memory(key)
	if err != nil {
		s.Fatal(err)
	}
	return mb
}

// changes replaces endpoints one at a time, and measures from the answer of the
// API server to the line in the proxy's log that follows the kernel's commit.
func (s *site) changes(n, services int) []time.Duration {
	s.Helper()
	client := s.fast().DiscoveryV1().EndpointSlices(namespace)
	log, err := os.Open(s.proxy.Log)
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	var took []time.Duration
	for turn := 1; turn <= n; turn++ {
		i := turn % services
		current, err := client.Get(s.Context(), scaleName(i), metav1.GetOptions{})
		if err != nil {
			s.Fatal(err)
		}
		changed := scaleSlice(i, len(current.Endpoints), turn)
		changed.ResourceVersion = current.ResourceVersion
		if _, err := log.Seek(0, 2); err != nil {
			s.Fatal(err)
		}
		if _, err := client.Update(s.Context(), changed, metav1.UpdateOptions{}); err != nil {
			s.Fatal(err)
		}
		begin := time.Now()
		s.awaitLine(log, `"Programmed"`)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took
}

// awaitLine waits until the log has a line with the text.
func (s *site) awaitLine(log *os.File, text string) {
	s.Helper()
	var seen []byte
	buf := make([]byte, 1<<16)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		n, _ := log.Read(buf)
		if seen = append(seen, buf[:n]...); bytes.Contains(seen, []byte(text)) {
			return
		}
	}
	s.Fatal("the change was not programmed")
}
