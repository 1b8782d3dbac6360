package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"sluice/internal/model"
	"sluice/internal/source"
	"sluice/internal/testkit"
)

// hasty retries without much of a pause.
var hasty = wait.Backoff{Duration: time.Millisecond, Factor: 2, Jitter: 1, Cap: 10 * time.Millisecond, Steps: 10}

// sink keeps what a source says, as the engine would.
type sink struct {
	mu      sync.Mutex
	state   *model.State
	updates [][]string
	synced  int
}

func newSink() *sink { return &sink{state: model.NewState()} }

func (s *sink) Update(events ...model.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var words []string
	for _, e := range events {
		words = append(words, wordOf(e))
	}
	slices.Sort(words)
	s.updates = append(s.updates, words)
	s.state.Apply(&model.Dirty{}, events...)
}

func (s *sink) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced++
}

// timesSynced counts how often the source said that it is in sync.
func (s *sink) timesSynced() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// mark is a point in the list of updates.
func (s *sink) mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updates)
}

// since returns the updates after a mark.
func (s *sink) since(mark int) [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.updates[mark:])
}

// heard reports whether an event arrived.
func (s *sink) heard(word string) bool {
	return slices.ContainsFunc(s.since(0), func(update []string) bool { return slices.Contains(update, word) })
}

// read gives access to the state.
func (s *sink) read(f func(*model.State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.state)
}

// wordOf says what an event is about.
func wordOf(e model.Event) string {
	switch e := e.(type) {
	case model.SetService:
		return fmt.Sprintf("service %s %v", e.Name, e.ClusterIPs)
	case model.DeleteService:
		return fmt.Sprintf("no service %s", e.Name)
	case model.SetSlice:
		var addrs []string
		for _, endpoint := range e.Endpoints {
			addrs = append(addrs, endpoint.Addr.String())
		}
		return fmt.Sprintf("slice %s of %s %v", e.Slice.Name, e.Service, addrs)
	case model.DeleteSlice:
		return fmt.Sprintf("no slice %s", e.Name)
	case model.SetNode:
		if e.Node == nil {
			return "no node"
		}
		return fmt.Sprintf("node %s %v", e.Name, e.IPs)
	case model.SetPeer:
		return fmt.Sprintf("peer %s %v", e.Name, e.IPs)
	case model.DeletePeer:
		return "no peer " + e.Name
	case model.SetServiceCIDR:
		return fmt.Sprintf("cidr %s %v", e.Name, e.Prefixes)
	case model.DeleteServiceCIDR:
		return fmt.Sprintf("no cidr %s", e.Name)
	}
	return fmt.Sprintf("%T", e)
}

// fixture is a source that follows a server.
type fixture struct {
	*testing.T
	*sink
	server *apiServer
	source *Source
	cancel func()
	ended  chan error

	logMu sync.Mutex
	log   []string
}

// follow starts a source for the node "here".
func follow(t *testing.T, server *apiServer, edit func(*Options)) *fixture {
	t.Helper()
	f := &fixture{T: t, sink: newSink(), server: server, ended: make(chan error, 1)}
	options := Options{Proxy: source.Proxy{NodeName: "here"}, retry: hasty, Logger: funcr.New(func(_, args string) {
		f.logMu.Lock()
		defer f.logMu.Unlock()
		f.log = append(f.log, args)
	}, funcr.Options{})}
	if server != nil {
		options.Client = server.client()
	}
	if edit != nil {
		edit(&options)
	}
	f.source = New(options)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go func() { f.ended <- f.source.Run(ctx, f.sink) }()
	t.Cleanup(cancel)
	return f
}

// eventually waits for a condition.
func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	testkit.Eventually(f, func() error {
		if condition() {
			return nil
		}
		return fmt.Errorf("%s: did not come about\nupdates: %v\nlog:\n%s", what, f.since(0), strings.Join(f.logged(""), "\n"))
	})
}

func (f *fixture) inSync() {
	f.Helper()
	f.eventually("being in sync", func() bool { return f.timesSynced() == 1 })
}

func (f *fixture) hears(word string) {
	f.Helper()
	f.eventually(word, func() bool { return f.heard(word) })
}

// logged returns the log lines that hold a text.
func (f *fixture) logged(text string) []string {
	f.logMu.Lock()
	defer f.logMu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.log), func(line string) bool { return !strings.Contains(line, text) })
}

// onBoth runs a test with a server that streams lists and with one that does not.
func onBoth(t *testing.T, test func(*testing.T, *apiServer)) {
	t.Helper()
	for name, streams := range map[string]bool{"streamed lists": true, "plain lists": false} {
		t.Run(name, func(t *testing.T) {
			test(t, newAPIServer(t, streams, servicesPath, slicesPath, nodesPath, cidrsPath))
		})
	}
}

func ptr[T any](v T) *T { return &v }

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }

func aService(name, ip string) *v1.Service {
	return &v1.Service{ObjectMeta: named(name), Spec: v1.ServiceSpec{
		ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []v1.ServicePort{{Port: 80}},
	}}
}

func aSlice(name string, addrs ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: named(name), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Port: ptr(int32(8080))}},
	}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	for _, addr := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}})
	}
	return s
}

func aNode(name string, addrs ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, addr := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: addr})
	}
	return n
}

func aCIDR(prefixes ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: prefixes},
	}
}
