package status

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"sluice/internal/engine"
	"sluice/internal/model"
)

const (
	mostFailures = 20 // that are listed
	mostProblems = 20 // that are listed
)

// Report is how the proxy is. The names of its fields in JSON are an interface:
// they stay.
type Report struct {
	Version string `json:"version"`
	Kernel  string `json:"kernel"`
	Mode    string `json:"mode"`
	// ModeReason is why the mode is this one, "" if it was chosen.
	ModeReason string `json:"modeReason,omitempty"`

	Node    string    `json:"node"`
	Now     time.Time `json:"now"`
	Started time.Time `json:"started"`

	// Healthy says that the kernel follows what is desired, Leaving why load
	// balancers should send no new connections here, "" if they should.
	Healthy bool   `json:"healthy"`
	Leaving string `json:"leaving,omitempty"`

	// Waiting is why the proxy does nothing yet: another has the node. "" otherwise.
	Waiting string `json:"waiting,omitempty"`

	// IPv4Only says that this node does no IPv6.
	IPv4Only bool `json:"ipv4Only,omitempty"`

	// Synced says that the sources told all they knew at the start, WaitingFor
	// names those that did not.
	Synced     bool     `json:"synced"`
	WaitingFor []string `json:"waitingFor,omitempty"`

	// APIServer is how things stand with the API server, nil without one.
	APIServer *APIServer `json:"apiServer,omitempty"`

	DesiredRevision    uint64 `json:"desiredRevision"`
	ProgrammedRevision uint64 `json:"programmedRevision"`

	Services  int       `json:"services"`
	Slices    int       `json:"slices"`
	Endpoints int       `json:"endpoints"` // in slices, each as often as it is there
	Frontends Frontends `json:"frontends"`

	// Advisories are what on the node is in the way of Services, or may be.
	Advisories []Problem `json:"advisories,omitempty"`

	// Writing is how far a commit under way is.
	Writing *Writing `json:"writing,omitempty"`

	PendingSince time.Time `json:"pendingSince,omitzero"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	LastError    string    `json:"lastError,omitempty"` // while FailingSince is set
	LastCommit   time.Time `json:"lastCommit,omitzero"`
	LastVerified time.Time `json:"lastVerified,omitzero"`
	Commits      uint64    `json:"commits"`
	Repairs      uint64    `json:"reconciles"`
	Transactions uint64    `json:"transactions"`

	Failures []Failure `json:"failures,omitempty"` // at most 20; Frontends counts all
	Problems []Problem `json:"problems,omitempty"` // at most 20
	// ProblemCount counts all that was left out of objects.
	ProblemCount int      `json:"problemCount"`
	Changes      []Change `json:"changes,omitempty"` // the newest first
}

// APIServer is how things stand with the API server.
type APIServer struct {
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`           // it is, or is not
	Error     string    `json:"error,omitempty"` // while it is not
	Remedy    string    `json:"remedy,omitempty"`
	// WaitingFor are the kinds of which nothing was received yet.
	WaitingFor []string `json:"waitingFor,omitempty"`
	// Without are the kinds that the proxy does its work without.
	Without []Absence `json:"without,omitempty"`
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

// Writing is how far a commit is.
type Writing struct {
	Since        time.Time `json:"since"`
	Done         int       `json:"done"`  // frontends
	Total        int       `json:"total"` // 0 if it is not known yet
	Transactions int       `json:"transactions"`
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

// Problem is something that was left out of an object, or an object that was
// refused.
type Problem struct {
	Object string `json:"object"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy,omitempty"`
}

// Options is what a Reporter is made of.
type Options struct {
	Engine  *engine.Engine
	History *History
	// Healthy and Leaving are as in Report.
	Healthy func() bool
	Leaving func() string
	// Advisories are as in Report; nil for none.
	Advisories func() []model.Problem
	// APIServer is nil without one.
	APIServer func() *APIServer

	Version, Mode, ModeReason, Node string
	Clock                           clock.PassiveClock
}

// Reporter makes Reports.
type Reporter struct {
	Options
	kernel  string
	started time.Time
}

// WaitingReport is the report of a proxy that does nothing yet, for that reason. It
// knows no more than this.
func WaitingReport(o Options, started time.Time, reason string) *Report {
	return &Report{
		Version: o.Version, Kernel: kernelVersion(), Mode: o.Mode, ModeReason: o.ModeReason, Node: o.Node,
		Now: o.Clock.Now(), Started: started, Waiting: reason,
	}
}

// New returns a Reporter.
func New(o Options) *Reporter {
	return &Reporter{Options: o, kernel: kernelVersion(), started: o.Clock.Now()}
}

// Report tells how the proxy is now.
func (r *Reporter) Report() *Report {
	s := r.Engine.Status()
	out := &Report{
		Version: r.Version, Kernel: r.kernel, Mode: r.Mode, ModeReason: r.ModeReason, Node: r.Node,
		Now: r.Clock.Now(), Started: r.started,
		Healthy: r.Healthy(), Leaving: r.Leaving(),
		Synced: s.Synced, WaitingFor: s.WaitingFor,
		DesiredRevision: s.DesiredRevision, ProgrammedRevision: s.ProgrammedRevision,
		Frontends:    Frontends{s.Frontends, s.Programmed, s.Pending, s.Failed},
		PendingSince: s.PendingSince, FailingSince: s.FailingSince,
		LastCommit: s.LastCommit, LastVerified: s.LastVerified,
		Commits: s.Commits, Repairs: s.Reconciles, Transactions: s.Transactions,
		Changes: r.History.Last(),
	}
	if r.Advisories != nil {
		for _, p := range r.Advisories() {
			out.Advisories = append(out.Advisories, Problem(p))
		}
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
	failures := r.Engine.Failures()
	r.Engine.Inspect(func(v engine.View) { out.look(v, failures) })
	return out
}

// look takes what the report needs out of a view.
func (out *Report) look(v engine.View, failures []engine.Failure) {
	out.IPv4Only = v.Desired.Settings.NoIPv6
	tally := v.State.Counts()
	out.Services, out.Slices, out.Endpoints = len(v.State.Services()), tally.Slices, tally.Endpoints
	for _, f := range failures[:min(len(failures), mostFailures)] {
		failure := Failure{Frontend: f.Key.String(), Error: f.Err.Error(), Since: f.Since, Attempts: f.Attempts, Retry: f.Retry}
		if fe := v.Desired.Frontends[f.Key]; fe != nil {
			failure.Service = fe.Service.String()
		}
		out.Failures = append(out.Failures, failure)
	}
	out.takeProblems(v)
}

// takeProblems takes a few of the problems, and always the same. Objects that were
// refused as a whole come first.
func (out *Report) takeProblems(v engine.View) {
	refused := v.Desired.Refused
	out.ProblemCount = len(refused)
	for _, p := range refused[:min(len(refused), mostProblems)] {
		out.Problems = append(out.Problems, Problem(p))
	}
	objects := make([]string, 0, len(v.Desired.Problems))
	for object, problems := range v.Desired.Problems {
		out.ProblemCount += len(problems)
		objects = append(objects, object)
	}
	slices.Sort(objects)
	for _, object := range objects {
		for _, p := range v.Desired.Problems[object] {
			if len(out.Problems) == mostProblems {
				return
			}
			out.Problems = append(out.Problems, Problem(p))
		}
	}
}

func kernelVersion() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}
