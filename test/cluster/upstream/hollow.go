//go:build upstream

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/proxy/kubemark"
)

// hollow runs hollow proxies, as kubemark does for nodes that are none, each with a connection of its
// own. It prints "synced" when all of them have listed everything. For each address that it reads it
// prints "seen" when all of them have got an update of an EndpointSlice that begins with it.
func hollow(kubeconfig, nodes string, in io.Reader, out io.Writer) error {
	n, err := strconv.Atoi(nodes)
	if err != nil {
		return err
	}
	synced := make(chan struct{}, 2*n)
	seen := &sightings{count: map[string]int{}}
	seen.changed.L = &seen.mu
	ended := make(chan error, n)
	for i := range n {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		config.ContentType, config.QPS, config.Burst, config.UserAgent = runtime.ContentTypeProtobuf, 10, 20, "hollow-proxy"
		config.Dial = (&net.Dialer{}).DialContext // another function is another connection
		client, err := clientset.NewForConfig(config)
		if err != nil {
			return err
		}
		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
		h := kubemark.NewHollowProxy(fmt.Sprintf("fleet-%d", i), client, client.CoreV1(), broadcaster, broadcaster.NewRecorder(scheme.Scheme, "kube-proxy"))
		h.ProxyServer.Proxier = &observed{synced: synced, seen: seen}
		go func() { ended <- h.Run() }()
	}
	for range 2 * n {
		select {
		case err := <-ended:
			return err
		case <-synced:
		}
	}
	fmt.Fprintln(out, "synced")
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		seen.await(lines.Text(), n)
		fmt.Fprintln(out, "seen")
	}
	return lines.Err()
}

// observed is a proxier that does nothing but tell what it got.
type observed struct {
	kubemark.FakeProxier
	synced chan<- struct{}
	seen   *sightings
}

func (o *observed) OnServiceSynced()        { o.synced <- struct{}{} }
func (o *observed) OnEndpointSlicesSynced() { o.synced <- struct{}{} }
func (o *observed) OnEndpointSliceUpdate(_, slice *discoveryv1.EndpointSlice) {
	if len(slice.Endpoints) > 0 && len(slice.Endpoints[0].Addresses) > 0 {
		o.seen.add(slice.Endpoints[0].Addresses[0])
	}
}

// sightings counts how many proxies have got which address.
type sightings struct {
	mu      sync.Mutex
	changed sync.Cond
	count   map[string]int
}

func (s *sightings) add(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[address]++
	s.changed.Broadcast()
}

func (s *sightings) await(address string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.count[address] < n {
		s.changed.Wait()
	}
}
