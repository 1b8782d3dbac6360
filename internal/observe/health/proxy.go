package health

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/httpserver"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
)

// ProxyOptions configures a Proxy.
type ProxyOptions struct {
	// Address is the host and port to listen on. The unspecified address of
	// either family stands for all addresses of both.
	Address string
	// HardFail ends Run if it cannot listen. Otherwise it retries.
	HardFail bool
	// Families are those that the node supports; nil for both.
	Families []model.Family
	// Status is that of the engine.
	Status func() engine.Summary
	// Leaving returns why the node should get no new connections; "" if it
	// should. It is Eligibility.Leaving; nil for a node that stays.
	Leaving func() string
	// Waiting returns what the proxy waits for before it does any work; "" or
	// nil if it does not wait.
	Waiting func() string
	// Verdict judges the proxy; nil to judge it by Status and Waiting alone.
	Verdict func() verdict.Proxy
	// Answered is called for each answer, for counting; may be nil.
	Answered func(path string, status int)
	// Failed is called when the proxy cannot listen, the first time and
	// whenever the reason changes; may be nil.
	Failed func(error)
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
}

// Proxy serves the health of the proxy itself.
type Proxy struct {
	ProxyOptions
	healthy func() bool
	listen  func(network, address string) (net.Listener, error)
}

// NewProxy returns a Proxy that is idle until Run.
func NewProxy(o ProxyOptions) *Proxy {
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	if o.Families == nil {
		o.Families = model.Families[:]
	}
	if o.Leaving == nil {
		o.Leaving = func() string { return "" }
	}
	if o.Waiting == nil {
		o.Waiting = func() string { return "" }
	}
	if o.Verdict == nil {
		o.Verdict = func() verdict.Proxy {
			return verdict.OfProxy(verdict.Facts{Summary: o.Status(), Now: o.Clock.Now(), Waiting: o.Waiting()})
		}
	}
	if o.Answered == nil {
		o.Answered = func(string, int) {}
	}
	return &Proxy{ProxyOptions: o, healthy: Programming(o.Status, o.Clock), listen: httpserver.Listener(slices.Contains(o.Families, model.IPv6))}
}

// Handler serves /healthz, which load balancers use to decide whether to send
// new connections to the node: it must be ready and stay; /livez, which the kubelet
// uses to decide whether to restart the proxy: a node that is leaving is no reason for
// that, nor is a proxy that has not begun to serve; and /readyz, by which a rolling
// update decides whether to go on to the next node.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		r := p.readiness()
		eligible := p.Leaving() == ""
		r.NodeEligible = &eligible
		p.Answered("/healthz", r.write(w, r.Healthy && eligible))
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		r := p.report()
		r.Reason = p.Waiting()
		p.Answered("/livez", r.write(w, r.Healthy))
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := p.readiness()
		r.write(w, r.Healthy) // upstream's metrics do not count it
	})
	return mux
}

// report reports whether the kernel follows.
func (p *Proxy) report() report {
	return newReport(p.Status(), p.Families, p.healthy(), p.Clock.Now())
}

// readiness reports whether this process serves.
func (p *Proxy) readiness() report {
	r := p.report()
	r.Reason = p.notReady()
	r.Healthy = r.Reason == ""
	return r
}

// Run serves until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	server := httpserver.Server{
		Name: "the proxy's health", Address: p.Address, Flag: "--healthz-bind-address", Handler: p.Handler(), AnswerTimeout: answerTimeout,
		HardFail: p.HardFail, Failed: p.Failed, Listen: p.listen, Logger: p.Logger, Clock: p.Clock,
	}
	return server.Run(ctx)
}
