package explain

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// fakeKernel programs nothing and remembers what it should have.
type fakeKernel struct {
	refuse map[plan.Key]error
	err    error // of everything
	// what describes instead of what was programmed.
	describe func(dataplane.Destination, netip.Addr) (dataplane.Description, error)
}

func (k *fakeKernel) Reconcile(_ context.Context, d *plan.Desired) dataplane.Result {
	r := dataplane.Result{Err: k.err, Failed: map[plan.Key]error{}}
	for key, err := range k.refuse {
		if d.Frontends[key] != nil {
			r.Failed[key] = err
		}
	}
	return r
}

func (k *fakeKernel) Apply(context.Context, *plan.Change) dataplane.Result {
	return dataplane.Result{Err: k.err}
}
func (k *fakeKernel) Verify(context.Context) (bool, error)    { return true, nil }
func (k *fakeKernel) Repair(context.Context) dataplane.Result { return dataplane.Result{} }
func (k *fakeKernel) Disturbed() <-chan struct{}              { return nil }
func (k *fakeKernel) Close() error                            { return nil }
func (k *fakeKernel) Describe(_ context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	return k.describe(at, client)
}

// proxy is an engine that runs until the test ends, and what explains it.
type proxy struct {
	*Explainer
	engine *engine.Engine
}

// run starts an engine on a node in zone a with pods in 10.1.0.0/16. It has
// tried to program all that the events say when run returns.
func run(t *testing.T, k *fakeKernel, events ...model.Event) *proxy {
	t.Helper()
	p := start(t, k)
	p.engine.Update(
		model.SetNode{Node: &model.Node{Name: "here", Zone: "a", IPs: addrs("192.0.2.1")}},
		model.SetHostIPs{IPs: addrs("127.0.0.1", "192.0.2.1", "192.0.2.2")},
		model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "x", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}},
	)
	p.engine.Update(events...)
	p.engine.Synced()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if s := p.engine.Status(); s.Commits+s.FailedCommits > 0 {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is programmed")
		}
	}
}

// start starts an engine that knows nothing.
func start(t *testing.T, k *fakeKernel) *proxy {
	t.Helper()
	e := engine.New(engine.Options{
		Planner: plan.New(plan.Config{NodeName: "here", MasqueradeBit: 14, DetectLocal: plan.DetectClusterCIDR,
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}),
		Dataplane: k, Logger: logr.Discard(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	o := Options{Engine: e, Mode: "test", Node: "here"}
	if k.describe != nil {
		o.Kernel = k
	}
	return &proxy{New(o), e}
}

// ask returns the only answer to a question, and its text.
func (p *proxy) ask(t *testing.T, to, from string) (Answer, string) {
	t.Helper()
	r, err := p.Explain(t.Context(), Question{To: to, From: from})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Answers) != 1 {
		t.Fatalf("%d answers, want one", len(r.Answers))
	}
	var b strings.Builder
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	if r.Flows != r.Answers[0].Flows {
		t.Errorf("the reply says that packets flow: %t, the answer %t", r.Flows, r.Answers[0].Flows)
	}
	return r.Answers[0], b.String()
}

var addrs = testkit.Addrs

var web = model.Name{Namespace: "default", Name: "web"}

// service is default/web, changed by edits.
func service(edits ...func(*model.Service)) model.SetService {
	s := &model.Service{
		Name: web, ClusterIPs: addrs("10.96.0.1"),
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	for _, edit := range edits {
		edit(s)
	}
	return model.SetService{Service: s}
}

// external gives a Service frontends for those outside.
func external(s *model.Service) {
	s.LoadBalancerIPs = addrs("198.51.100.1")
	s.Ports = slices.Clone(s.Ports)
	s.Ports[0].NodePort = 30080
}

// endpoints are a slice of default/web with a ready endpoint on each node.
func endpoints(nodes ...string) model.SetSlice {
	s := &model.Slice{
		Name: model.Name{Namespace: "default", Name: "web-1"}, Service: "web", Family: model.IPv4,
		Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	for i, node := range nodes {
		s.Endpoints = append(s.Endpoints, model.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}), Node: node, Conditions: model.Ready | model.Serving,
		})
	}
	return model.SetSlice{Slice: s}
}

var webKey = plan.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}

var errRefused = errors.New("file exists")
