package status

import (
	"cmp"
	"fmt"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/history"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

const (
	maxFailures = 20 // that are listed
	maxProblems = 20 // that are listed
	maxBroken   = 20 // that are listed
)

// Report is the status of the proxy. The names of its fields in JSON are an
// interface and never change.
type Report struct {
	Version string `json:"version"`
	Kernel  string `json:"kernel"`
	Mode    string `json:"mode"`
	// System is what is programmed in place of the kernel, such as HNS; empty for the kernel.
	System plan.System `json:"system,omitempty"`
	// ModeReason is why the mode is this one, "" if it was configured.
	ModeReason string `json:"modeReason,omitempty"`

	// ServiceProxyName is the label of the Services that are served, "" for those without, and Serves
	// says the same in words; "" if all Services without the label are.
	ServiceProxyName string `json:"serviceProxyName,omitempty"`
	Serves           string `json:"serves,omitempty"`

	Node    string    `json:"node"`
	Now     time.Time `json:"now"`
	Started time.Time `json:"started"`

	// Proxy is whether the proxy does its job.
	verdict.Proxy

	// Healthy is set while the kernel follows the Services, which begins with the first
	// time that it is programmed. Leaving is why load balancers should send no new connections
	// here, "" if they should.
	Healthy bool   `json:"healthy"`
	Leaving string `json:"leaving,omitempty"`

	// Waiting is why the proxy does nothing yet, because another one programs the
	// node; "" otherwise.
	Waiting string `json:"waiting,omitempty"`

	// IPv4Only is set if IPv6 is switched off on this node.
	IPv4Only bool `json:"ipv4Only,omitempty"`

	// NodePortsOnly is set if nothing but node ports is served, because of --sandbox.
	NodePortsOnly bool `json:"nodePortsOnly,omitempty"`

	// Synced is set once all sources are in sync, WaitingFor are those that are not.
	Synced     bool     `json:"synced"`
	WaitingFor []string `json:"waitingFor,omitempty"`

	// Source is where Services come from.
	Source string `json:"source,omitempty"`
	// APIServer is nil without one.
	APIServer *APIServer `json:"apiServer,omitempty"`
	// Addresses are those that the proxy's servers listen on.
	Addresses Addresses `json:"addresses"`
	// Memory is what the process uses, in bytes.
	Memory uint64 `json:"memory,omitempty"`

	DesiredRevision    uint64 `json:"desiredRevision"`
	ProgrammedRevision uint64 `json:"programmedRevision"`

	// ByVerdict counts Services by verdict, and Broken are those of which not all clients get an
	// answer, at most 20, the worst first.
	ByVerdict map[verdict.Word]int `json:"servicesByVerdict,omitempty"`
	Broken    []Broken             `json:"broken,omitempty"`

	Services int `json:"services"`
	Slices   int `json:"slices"`
	// Ejected counts endpoints that get no new connections because they do not answer.
	Ejected int `json:"ejectedEndpoints,omitempty"`
	// DirectReturn is nil where it is switched off.
	DirectReturn *DirectReturn `json:"directReturn,omitempty"`
	Endpoints    int           `json:"endpoints"` // in slices, each as often as it is there
	// OrphanSlices counts slices of Services that are not known, beside Slices.
	OrphanSlices int `json:"orphanSlices,omitempty"`
	// Unlabelled names the first of them that lack the label with the name of a Service.
	Unlabelled []string  `json:"unlabelledSlices,omitempty"`
	Frontends  Frontends `json:"frontends"`

	// Advisories are what the administrator of the node should mend: trouble with the
	// configuration or the node's name, restarts that are due, and others that
	// interfere with Services.
	Advisories []model.Problem `json:"advisories,omitempty"`

	// Draining is what is left of an earlier kube-proxy, nil if nothing is.
	Draining *dataplane.Draining `json:"draining,omitempty"`

	// Relay is what the proxy itself forwards, nil if the kernel forwards all.
	Relay *Relay `json:"relay,omitempty"`

	// Evidence is how old that is what traffic shows, nil in a mode that sees nothing of it.
	Evidence *Evidence `json:"evidence,omitempty"`

	// FlowTable is what flow tables of the kernel forward, nil if they are off.
	FlowTable *FlowTable `json:"flowTable,omitempty"`

	// Writing is the progress of a commit, nil if there is none.
	Writing *Writing `json:"writing,omitempty"`

	PendingSince time.Time `json:"pendingSince,omitzero"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	LastError    string    `json:"lastError,omitempty"` // while FailingSince is set
	LastCommit   time.Time `json:"lastCommit,omitzero"`
	LastVerified time.Time `json:"lastVerified,omitzero"`
	Commits      uint64    `json:"commits"`
	Repairs      uint64    `json:"reconciles"`
	Transactions uint64    `json:"transactions"`

	Failures []Failure       `json:"failures,omitempty"` // at most 20; Frontends counts all
	Problems []model.Problem `json:"problems,omitempty"` // at most 20
	// ProblemCount counts all problems of objects.
	ProblemCount int      `json:"problemCount"`
	Changes      []Change `json:"changes,omitempty"` // the newest first
}

// Addresses are those that the proxy's servers listen on, "" for none.
type Addresses struct {
	Health  string `json:"health,omitempty"`
	Metrics string `json:"metrics,omitempty"`
	Page    string `json:"page,omitempty"`
}

func (a Addresses) String() string {
	var parts []string
	for _, server := range []struct{ what, at string }{{"health", a.Health}, {"metrics", a.Metrics}, {"page", a.Page}} {
		if server.at != "" {
			parts = append(parts, server.what+" on "+server.at)
		}
	}
	return strings.Join(parts, ", ")
}

// Change is a commit that changed something.
type Change = history.Commit

// APIServer is the state of the connection to the API server.
type APIServer struct {
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`           // connected, or not
	Error     string    `json:"error,omitempty"` // while not connected
	Remedy    string    `json:"remedy,omitempty"`
	// WaitingFor are the kinds that were not listed yet.
	WaitingFor []string `json:"waitingFor,omitempty"`
	// Without are the kinds that the proxy works without.
	Without []Absence `json:"without,omitempty"`
}

// Away describes why the API server is not connected, "" if it is.
func (a *APIServer) Away(now time.Time) string {
	since := printable.Duration(now.Sub(a.Since))
	switch {
	case a.Connected:
		return ""
	case a.Error == "":
		return fmt.Sprintf("the API server has not answered yet, for %s", since)
	}
	return fmt.Sprintf("the API server has not been reachable for %s: %s", since, a.Error)
}

// Absence is a kind of object that the API server does not let the proxy have.
type Absence struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// Frontends counts frontends by phase.
type Frontends struct {
	Desired    int `json:"desired"`
	Programmed int `json:"programmed"`
	Pending    int `json:"pending"`
	Failed     int `json:"failed"`
}

// Relay is what the proxy itself forwards.
type Relay struct {
	Connections int `json:"connections"` // of TCP, now
	Limit       int `json:"limit"`       // of the file descriptors of the process
}

func (r *Relay) String() string {
	return fmt.Sprintf("%s through this process, at most %d", printable.Count(r.Connections, "connection"), r.Limit)
}

// Writing is the progress of a commit.
type Writing struct {
	Since        time.Time `json:"since"`
	Done         int       `json:"done"`  // frontends
	Total        int       `json:"total"` // 0 if it is not known yet
	Transactions int       `json:"transactions"`
}

// Evidence is how old that is what traffic shows of endpoints.
type Evidence struct {
	At       time.Time `json:"at,omitzero"` // of the last look at connection tracking
	Interval float64   `json:"intervalSeconds"`
	// Error is why connections without an answer are not seen, and Blind why those that are
	// refused are not.
	Error string `json:"error,omitempty"`
	Blind string `json:"blind,omitempty"`
}

// FlowTable is what flow tables of the kernel forward.
type FlowTable struct {
	FlowTable string `json:"flowTable"` // as the configuration says
	// Devices are where packets come in that are forwarded so.
	Devices []string `json:"devices"`
	// Connections are how many there were at Counted.
	Connections int       `json:"connections"`
	Counted     time.Time `json:"counted,omitzero"`
	// Error is why nothing, or not all that should be, is forwarded so; "" if all is.
	Error string `json:"error,omitempty"`
}

// Broken is a Service of which not all clients get an answer.
type Broken struct {
	Service string       `json:"service"`
	Verdict verdict.Word `json:"verdict"`
	Why     string       `json:"why"`
}

// Failure is a frontend that the kernel refused.
type Failure struct {
	Frontend string    `json:"frontend"`
	Service  string    `json:"service,omitempty"`
	Error    string    `json:"error"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
	Retry    time.Time `json:"retry"`
}

// Options configures a Reporter.
type Options struct {
	Engine  *engine.Engine
	History *history.History
	// Verdict judges the proxy, and Verdicts the Services.
	Verdict  func() verdict.Proxy
	Verdicts func() map[model.Name]verdict.Service
	// Leaving is as in Report.
	Leaving func() string
	// Advisories are as in Report; nil for none.
	Advisories func() []model.Problem
	// Draining is as in Report; nil for none.
	Draining func() *dataplane.Draining
	// Relay is as in Report; nil for none.
	Relay func() *Relay
	// Evidence is as in Report; nil for none.
	Evidence func() *Evidence
	// FlowTable is as in Report; nil for none.
	FlowTable func() *FlowTable
	// Received is how many connections each other node has handed to this one for direct return; nil for none.
	Received func() map[string]uint64
	// APIServer is nil without one.
	APIServer func() *APIServer
	// Source and Addresses are as in Report; Addresses may be nil.
	Source    string
	Addresses func() Addresses

	Version, Mode, ModeReason, Node string
	ServiceProxyName, Serves        string
	Clock                           clock.PassiveClock
}

// Reporter makes Reports.
type Reporter struct {
	Options
	kernel  string
	started time.Time
}

// WaitingReport returns the report of a proxy that does nothing yet, for a reason.
func WaitingReport(o Options, started time.Time, reason string) *Report {
	return &Report{
		Version: o.Version, Kernel: kernelVersion(), Mode: o.Mode, ModeReason: o.ModeReason, Node: o.Node,
		ServiceProxyName: o.ServiceProxyName, Serves: o.Serves,
		Now: o.Clock.Now(), Started: started, Waiting: reason, Proxy: verdict.OfProxy(verdict.Facts{Waiting: reason}),
	}
}

// New returns a Reporter.
func New(o Options) *Reporter {
	return &Reporter{Options: o, kernel: kernelVersion(), started: o.Clock.Now()}
}

// Report returns the status of the proxy.
func (r *Reporter) Report() *Report {
	s := r.Engine.Status()
	out := &Report{
		Version: r.Version, Kernel: r.kernel, Mode: r.Mode, System: s.System, ModeReason: r.ModeReason, Node: r.Node,
		ServiceProxyName: r.ServiceProxyName, Serves: r.Serves,
		Now: r.Clock.Now(), Started: r.started,
		Proxy: r.Verdict(), Healthy: !s.LastCommit.IsZero() && !s.Behind(r.Clock.Now()), Leaving: r.Leaving(),
		Synced: s.Synced, WaitingFor: s.WaitingFor,
		DesiredRevision: s.DesiredRevision, ProgrammedRevision: s.ProgrammedRevision,
		Frontends:    Frontends{s.Frontends, s.Programmed, s.Pending, s.Failed},
		PendingSince: s.PendingSince, FailingSince: s.FailingSince,
		LastCommit: s.LastCommit, LastVerified: s.LastVerified,
		Commits: s.Commits, Repairs: s.Reconciles, Transactions: s.Transactions,
		Changes: r.History.Commits(), Source: r.Source, Memory: memory(),
	}
	if r.Advisories != nil {
		out.Advisories = r.Advisories()
	}
	if r.Relay != nil {
		out.Relay = r.Relay()
	}
	if r.Evidence != nil {
		out.Evidence = r.Evidence()
	}
	if r.FlowTable != nil {
		out.FlowTable = r.FlowTable()
	}
	if r.Draining != nil {
		out.Draining = r.Draining()
	}
	if s.LastError != nil && !s.FailingSince.IsZero() {
		out.LastError = s.LastError.Error()
	}
	if p := s.Progress; !s.WritingSince.IsZero() {
		out.Writing = &Writing{s.WritingSince, p.Done, p.Total, p.Transactions}
	}
	if r.APIServer != nil {
		out.APIServer = r.APIServer()
	}
	if r.Addresses != nil {
		out.Addresses = r.Addresses()
	}
	failures := r.Engine.Failures()
	r.Engine.Inspect(func(v engine.View) { out.readView(v, failures) })
	if out.DirectReturn != nil && r.Received != nil {
		out.DirectReturn.addReceived(r.Received())
	}
	out.readVerdicts(r.Verdicts())
	return out
}

// memory returns how much of the machine's memory the runtime uses.
func memory() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

func (out *Report) readView(v engine.View, failures []engine.Failure) {
	out.IPv4Only, out.NodePortsOnly = v.Desired.Settings.NoIPv6, v.Desired.Settings.NodePortsOnly
	counts := v.State.Counts()
	out.Services, out.Slices, out.Endpoints = len(v.State.Services()), counts.Slices, counts.Endpoints
	out.Ejected, out.DirectReturn = v.Desired.EjectedEndpoints(), readDirect(v.Desired)
	if out.OrphanSlices = v.State.Orphans(); out.OrphanSlices > 0 {
		for i, s := range v.State.Unlabelled() {
			if i == maxProblems {
				break
			}
			out.Unlabelled = append(out.Unlabelled, s.Name.String())
		}
	}
	for _, f := range failures[:min(len(failures), maxFailures)] {
		failure := Failure{Frontend: f.Key.String(), Error: f.Err.Error(), Since: f.Since, Attempts: f.Attempts, Retry: f.Retry}
		if fe := v.Desired.Frontends[f.Key]; fe != nil {
			failure.Service = fe.Service.String()
		}
		out.Failures = append(out.Failures, failure)
	}
	out.readProblems(v)
}

func (out *Report) readVerdicts(all map[model.Name]verdict.Service) {
	out.ByVerdict = map[verdict.Word]int{}
	var broken []model.Name
	for name, v := range all {
		out.ByVerdict[v.Word]++
		if v.Word != verdict.Works && v.Word != verdict.Unknown {
			broken = append(broken, name)
		}
	}
	slices.SortFunc(broken, func(a, b model.Name) int { return cmp.Or(all[a].Word.Compare(all[b].Word), a.Compare(b)) })
	for _, name := range broken[:min(len(broken), maxBroken)] {
		out.Broken = append(out.Broken, Broken{name.String(), all[name].Word, all[name].Why})
	}
}

// readProblems reads the first problems in a stable order, those of refused objects
// first.
func (out *Report) readProblems(v engine.View) {
	refused := v.Desired.Invalid
	out.ProblemCount = len(refused)
	out.Problems = slices.Clone(refused[:min(len(refused), maxProblems)])
	objects := make([]model.Object, 0, len(v.Desired.Problems))
	for object, problems := range v.Desired.Problems {
		out.ProblemCount += len(problems)
		objects = append(objects, object)
	}
	slices.SortFunc(objects, model.Object.Compare)
	for _, object := range objects {
		for _, p := range v.Desired.Problems[object] {
			if len(out.Problems) == maxProblems {
				return
			}
			out.Problems = append(out.Problems, p)
		}
	}
}

// Condition is how something is: a word for it and a sentence.
type Condition struct {
	Level      Level
	Word, Text string
}

// Level is how good a Condition is.
type Level string

// The levels.
const (
	Good Level = "good"
	Busy Level = "busy"
	Fair Level = "fair"
	Bad  Level = "bad"
)

// Condition returns the condition of the proxy in the words of its verdict, and what is worst
// about its Services if it serves them.
func (r *Report) Condition() Condition {
	c := Condition{Good, printable.Sentence(r.Word.Text()), printable.Sentence(r.Why)}
	switch r.Word {
	case verdict.NotServing:
		c.Level = Bad
		return c
	case verdict.NotYet:
		c.Level = Busy
		return c
	case verdict.ServingThePast:
		c.Level = Fair
		if !r.FailingSince.IsZero() || !r.Healthy {
			c.Level = Bad
		}
		return c
	}
	switch f := r.Frontends; {
	case f.Failed > 0:
		c.Level, c.Text = Fair, printable.Sentence(r.System.String())+" refused "+printable.Count(f.Failed, "frontend")+". All others work."
	case r.failing() > 0:
		c.Level, c.Text = Fair, printable.Count(r.failing(), "Service")+" whose clients get no answer."
	case r.Leaving != "":
		c.Level, c.Text = Fair, "Load balancers are told to send no new connections: "+r.Leaving+"."
	case f.Pending > 0:
		c.Level, c.Text = Busy, printable.Count(f.Pending, "frontend")+" on the way into "+r.System.String()+"."
	}
	return c
}

func (r *Report) failing() int { return r.ByVerdict[verdict.NoAnswer] + r.ByVerdict[verdict.Refused] }

// BrokenServices counts the Services of which not all clients get an answer.
func (r *Report) BrokenServices() int { return r.failing() + r.ByVerdict[verdict.WorksForSome] }
