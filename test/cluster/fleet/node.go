package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientset "k8s.io/client-go/kubernetes"
	componentconfig "k8s.io/component-base/config/v1alpha1"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/source"
	sourcekubernetes "sluice/internal/source/kubernetes"
)

// node is a proxy without a dataplane, with a connection of its own.
type node struct {
	*arrivals
	traffic *traffic
	synced  chan struct{} // closed by the first commit
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// startNode starts the proxy of a node.
func (c *cluster) startNode(name string, t *traffic) (*node, error) {
	config, err := sourcekubernetes.Config(componentconfig.ClientConnectionConfiguration{Kubeconfig: c.kubeconfig, QPS: 5, Burst: 10}, "", "fleet")
	if err != nil {
		return nil, err
	}
	dial := config.Dial
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		t.connections.Add(1)
		return &countedConn{conn, t}, nil
	}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &countedRequests{rt, t} })
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	n := &node{arrivals: &arrivals{changes: &c.changes, seen: map[int]struct{}{}}, traffic: t, synced: make(chan struct{})}
	e := engine.New(engine.Options{
		Planner:   plan.New(plan.Config{NodeName: name, MasqueradeBit: 14, RequireNode: true}),
		Dataplane: nothing{},
		Logger:    logr.Discard(),
	})
	first := sync.OnceFunc(func() { close(n.synced) })
	e.Observe(n.arrivals, engine.ObserverFunc(func(*engine.Commit) { first() }))
	s := sourcekubernetes.New(sourcekubernetes.Options{Client: client, Proxy: source.Proxy{NodeName: name}, Logger: logr.Discard()})
	host, cluster := e.AddSource("host"), e.AddSource("kubernetes")
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.running.Go(func() { _ = e.Run(ctx) })
	n.running.Go(func() { _ = s.Run(ctx, cluster) })
	host.Update(model.SetHostIPs{IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}})
	host.Synced()
	return n, nil
}

func (n *node) stop() {
	n.cancel()
	n.running.Wait()
}

// awaitSync waits for the first commit.
func (n *node) awaitSync(ctx context.Context) error {
	select {
	case <-n.synced:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errors.New("a node does not get in sync"))
	}
}

// nothing is a dataplane that writes nothing.
type nothing struct{}

func (nothing) Reconcile(context.Context, *plan.Desired) dataplane.Result { return dataplane.Result{} }
func (nothing) Apply(context.Context, *plan.Change) dataplane.Result      { return dataplane.Result{} }
func (nothing) Verify(context.Context) (bool, error)                      { return true, nil }
func (nothing) Repair(context.Context) dataplane.Result                   { return dataplane.Result{} }
func (nothing) Disturbed() <-chan struct{}                                { return nil }
func (nothing) Close() error                                              { return nil }

// traffic is what passes between nodes and the API server.
type traffic struct {
	connections, received, sent atomic.Int64

	mu       sync.Mutex
	requests map[string]int // by what was asked for
}

func newTraffic() *traffic { return &traffic{requests: map[string]int{}} }

// lists returns how often whole kinds were sent, and at most of one kind.
func (t *traffic) lists() (all, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for what, n := range t.requests {
		if strings.HasPrefix(what, "list ") {
			all += n
			most = max(most, n)
		}
	}
	return all, most
}

// count counts requests that begin with a verb.
func (t *traffic) count(verb string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for what, times := range t.requests {
		if strings.HasPrefix(what, verb) {
			n += times
		}
	}
	return n
}

// countedRequests counts requests by what they ask for.
type countedRequests struct {
	http.RoundTripper
	traffic *traffic
}

var _ utilnet.RoundTripperWrapper = &countedRequests{}

func (c *countedRequests) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

func (c *countedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	verb := "list "
	if query.Get("watch") == "true" && query.Get("sendInitialEvents") != "true" {
		verb = "watch "
	}
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		verb = "refused " // or not answered
	}
	c.traffic.mu.Lock()
	c.traffic.requests[verb+resource]++
	c.traffic.mu.Unlock()
	return answer, err
}

// countedConn counts bytes as they are on the wire, encrypted.
type countedConn struct {
	net.Conn
	traffic *traffic
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(int64(n))
	return n, err
}
