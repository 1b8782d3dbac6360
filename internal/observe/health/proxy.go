package health

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/httpserver"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
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

// startingFor is how long a starting node may be without its Node object.
// Upstream waits for it as long.
const startingFor = 30 * time.Second

// Eligibility determines whether load balancers should send new connections to
// this node. It depends on the current Node object only: a deleted Node is like
// one that never existed.
type Eligibility struct {
	engine engine.Inspector
	clock  clock.PassiveClock
	began  time.Time
}

// NewEligibility returns the Eligibility of a node whose proxy starts now.
func NewEligibility(e engine.Inspector, c clock.PassiveClock) *Eligibility {
	return &Eligibility{e, c, c.Now()}
}

// Leaving returns why there should be no new connections; "" if there should.
func (e *Eligibility) Leaving() string {
	var found plan.Eligibility
	e.engine.Inspect(func(v engine.View) { found = v.Desired.Eligibility })
	if found.Starting && e.clock.Since(e.began) < startingFor {
		return ""
	}
	return found.Reason
}

// report is the health of the proxy. Cloud providers, kubelets and dashboards
// rely on its form.
type report struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"` // only on /healthz
	Healthy      bool                    `json:"healthy"`                // regardless of NodeEligible
	Status       map[string]familyReport `json:"status,omitempty"`
	Reason       string                  `json:"reason,omitempty"` // why it is not ready, or waits
}

type familyReport struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// newReport reports the same of all families: one commit programs them all.
// Before the first commit none is listed.
func newReport(s engine.Summary, families []model.Family, healthy bool, now time.Time) report {
	r := report{LastUpdated: s.LastCommit, CurrentTime: now, Healthy: healthy}
	if s.LastCommit.IsZero() {
		return r
	}
	r.Status = map[string]familyReport{}
	for _, family := range families {
		r.Status[family.String()] = familyReport{s.LastCommit, healthy}
	}
	return r
}

// write writes the response. Readers of a good one take lastUpdated for the
// last time at which the proxy was healthy: that is now, even if nothing has
// changed for long.
func (r report) write(w http.ResponseWriter, good bool) int {
	status := http.StatusServiceUnavailable
	if good {
		status = http.StatusOK
		r.LastUpdated = r.CurrentTime
	}
	body, err := json.Marshal(r)
	return writeJSON(w, status, body, err)
}

// notReady returns why neither new connections should come nor a rolling update go on, "" if
// they may: this process has programmed everything once, or found it in the kernel, and the
// kernel follows. A proxy that was ready stays so while the API server is away, which is no
// fault of this version, and on a node that leaves.
func (p *Proxy) notReady() string { return NotReady(p.Verdict(), p.Status(), p.Clock.Now()) }

// NotReady is what /readyz says of a proxy.
func NotReady(v verdict.Proxy, s engine.Summary, now time.Time) string {
	if v.Word.Ready() && !s.Behind(now) {
		return ""
	}
	return v.Why
}

// Programming returns a function that reports whether the kernel is up to date.
func Programming(status func() engine.Summary, c clock.PassiveClock) func() bool {
	return func() bool {
		s := status()
		return !s.Behind(c.Now())
	}
}
