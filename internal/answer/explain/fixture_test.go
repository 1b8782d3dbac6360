package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// behaviour is how the dataplane of a test behaves.
type behaviour = enginetest.Behaviour

// proxy is an engine that runs until the test ends, and its Explainer.
type proxy struct {
	*Explainer
	engine *enginetest.Engine
}

// run starts an engine on a node in zone a with pods in 10.1.0.0/16. When it returns,
// the engine has tried to program all events.
func run(t *testing.T, b behaviour, events ...model.Event) *proxy {
	t.Helper()
	p := start(t, b)
	p.engine.Attempt(append([]model.Event{
		model.SetNode{Node: &model.Node{Name: "here", Zone: "a", IPs: addrs("192.0.2.1")}},
		model.SetHostIPs{IPs: addrs("127.0.0.1", "192.0.2.1", "192.0.2.2")},
		model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "x", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}},
	}, events...)...)
	return p
}

// start starts an engine that knows nothing.
func start(t *testing.T, b behaviour) *proxy {
	t.Helper()
	return startOn(t, enginetest.New(t, plan.Config{NodeName: "here", MasqueradeBit: 14, DetectLocal: plan.DetectClusterCIDR,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}), b)
}

// startOn starts an engine, with a dataplane that behaves as it should in the test.
func startOn(t *testing.T, e *enginetest.Engine, b behaviour) *proxy {
	t.Helper()
	e.Dataplane.Set(func(is *behaviour) { *is = b })
	e.Start()
	judge := func(v engine.View) *verdict.Judge { return &verdict.Judge{View: v, Phase: e.Frontend} }
	o := Options{Engine: e.Engine, Judge: judge, Mode: "test", Node: "here"}
	if b.Describe != nil {
		o.Describer = e.Dataplane
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
	if others := r.Service == nil || !r.Service.Faulty(); r.Flows != (r.Answers[0].Flows && others) {
		t.Errorf("the reply says that packets flow: %t, the answer %t, of %+v", r.Flows, r.Answers[0].Flows, r.Service)
	}
	return r.Answers[0], b.String()
}

var addrs = testkit.Addrs

// service is default/web, changed by edits.
func service(edits ...func(*model.Service)) model.SetService {
	return enginetest.Service("default/web", "10.96.0.1", edits...)
}

// external gives a Service frontends for those outside.
func external(s *model.Service) {
	s.LoadBalancerIPs = addrs("198.51.100.1")
	s.Ports = slices.Clone(s.Ports)
	s.Ports[0].NodePort = 30080
}

// endpoints are a slice of default/web with a ready endpoint on each node.
func endpoints(nodes ...string) model.SetSlice {
	var at []string
	for i, node := range nodes {
		at = append(at, fmt.Sprintf("10.1.0.%d@%s", i+1, node))
	}
	return enginetest.Slice(service().Service, at...)
}

var webIP = netip.MustParseAddr("10.96.0.1")

var errRefused = errors.New("file exists")
