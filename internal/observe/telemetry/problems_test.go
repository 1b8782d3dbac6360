//go:build linux

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// journal is a Recorder that keeps Events.
type journal struct {
	mu     sync.Mutex
	events []Event
}

func (j *journal) Record(e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

// taken returns the Events since the last call, as "Kind namespace/name reason: note".
func (j *journal) taken() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := []string{}
	for _, e := range j.events {
		out = append(out, fmt.Sprintf("%s %s/%s %s: %s", e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name, e.Reason, e.Note))
	}
	j.events = nil
	return out
}

func (w *world) problems(r Recorder) *Problems {
	return NewProblems(ProblemsOptions{Recorder: r, Clock: w.clock, Engine: w})
}

func (w *world) refuse(addr string, err error) {
	w.failures = append(w.failures, engine.Failure{Key: keyOf(addr), FrontendStatus: engine.FrontendStatus{Err: err}})
}

// runs makes this node run an endpoint of some objects.
func (w *world) runs(objects ...model.Object) {
	for _, object := range objects {
		w.desired.EventsOn[object] = struct{}{}
	}
}

func problem(field, reason string) model.Problem {
	return model.Problem{Object: model.Object{Kind: "whatever"}, Field: field, Reason: reason, Remedy: "mend it"}
}

func wantRecorded(t *testing.T, j *journal, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, j.taken()); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

func TestEventsOnWhatIsNotProgrammed(t *testing.T) {
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	w.desired.Problems[model.Object{Kind: "Service", Namespace: "default", Name: "web"}] = []model.Problem{problem("spec.externalIPs[0]", "is odd")}
	w.desired.Problems[model.Object{Kind: "EndpointSlice", Namespace: "post", Name: "mail-1"}] = []model.Problem{
		problem("a", "1"), problem("b", "2"), problem("c", "3"), problem("d", "4"), problem("", "5")}
	w.desired.Problems[model.NodeObject("here")] = []model.Problem{{Object: model.NodeObject("here"), Reason: "has no address"}}
	w.desired.Frontends[keyOf("10.96.0.1")] = frontend("10.96.0.1", web)
	w.runs(model.Object{Kind: "Service", Namespace: "default", Name: "web"}, model.Object{Kind: "EndpointSlice", Namespace: "post", Name: "mail-1"})
	w.refuse("10.96.0.1", errors.New("no space left"))
	w.refuse("10.96.0.9", errors.New("its removal; nobody's by now"))
	p.record()
	wantRecorded(t, j,
		"EndpointSlice post/mail-1 PartlyIgnored: a: 1 (mend it); b: 2 (mend it); c: 3 (mend it); and 2 more",
		"Node /here PartlyIgnored: has no address",
		"Service default/web PartlyIgnored: spec.externalIPs[0]: is odd (mend it)",
		"Service default/web ServiceNotProgrammed: ClusterIP 10.96.0.1:80/TCP: no space left",
	)
}

// Endpoints that do not answer are an Event, which is not repeated as more connections fail.
func TestEventsOnEndpointsThatDoNotAnswer(t *testing.T) {
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	w.runs(model.Object{Kind: "Service", Namespace: "default", Name: "web"})
	since := time.Date(2026, 11, 18, 12, 3, 0, 0, time.UTC)
	now := map[model.Name]verdict.Service{}
	p.Verdicts = func() map[model.Name]verdict.Service { return maps.Clone(now) }
	now[web] = verdict.Service{Word: verdict.NoAnswer, Cause: verdict.EndpointSilent, Why: "67 failed attempts", Since: since}
	now[model.Name{Namespace: "default", Name: "elsewhere"}] = now[web]
	p.record()
	wantRecorded(t, j, "Service default/web EndpointsNotAnswering: does not answer: endpoints do not answer since 12:03:00 UTC, as clients on or through this node found (kube-proxy explain says which)")
	now[web] = verdict.Service{Word: verdict.NoAnswer, Cause: verdict.EndpointSilent, Why: "68 failed attempts", Since: since}
	p.record()
	wantRecorded(t, j)
	now[web] = verdict.Service{Word: verdict.Refused, Cause: "no-endpoints"}
	p.record()
	wantRecorded(t, j)
}

// TestOnlyConcernedNodesRecordEvents is one of many nodes with the same problem of a
// Service, until it runs an endpoint of it.
func TestOnlyConcernedNodesRecordEvents(t *testing.T) {
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	for _, object := range []model.Object{
		{Kind: "Service", Namespace: "default", Name: "web"}, {Kind: "EndpointSlice", Namespace: "default", Name: "web-1"},
		{Kind: "ServiceCIDR", Name: "odd"}, model.NodeObject("here"),
	} {
		w.desired.Problems[object] = []model.Problem{problem("spec", "is odd")}
	}
	w.desired.Frontends[keyOf("10.96.0.1")] = frontend("10.96.0.1", web)
	w.refuse("10.96.0.1", errors.New("no space left"))
	p.record()
	wantRecorded(t, j, "Node /here PartlyIgnored: spec: is odd (mend it)")
	w.runs(model.Object{Kind: "Service", Namespace: "default", Name: "web"})
	p.record()
	wantRecorded(t, j,
		"Service default/web PartlyIgnored: spec: is odd (mend it)",
		"Service default/web ServiceNotProgrammed: ClusterIP 10.96.0.1:80/TCP: no space left")
	w.runs(model.Object{Kind: "EndpointSlice", Namespace: "default", Name: "web-1"})
	p.record()
	wantRecorded(t, j, "EndpointSlice default/web-1 PartlyIgnored: spec: is odd (mend it)")
}

func TestAProblemIsRecordedOnce(t *testing.T) {
	const want = "Service default/web PartlyIgnored: spec: is odd (mend it)"
	object := model.ServiceObject(web)
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	odd := []model.Problem{problem("spec", "is odd")}
	w.runs(object)
	w.desired.Problems[object] = odd
	p.record()
	wantRecorded(t, j, want)
	p.record()
	w.clock.Step(time.Hour)
	p.record()
	wantRecorded(t, j)
	delete(w.desired.Problems, object)
	p.record()
	wantRecorded(t, j)
	w.desired.Problems[object] = odd
	p.record()
	wantRecorded(t, j, want)
}

func TestChangingProblemsAreRateLimited(t *testing.T) {
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	w.desired.Frontends[keyOf("10.96.0.1")] = frontend("10.96.0.1", web)
	w.runs(model.Object{Kind: "Service", Namespace: "default", Name: "web"})
	w.refuse("10.96.0.1", errors.New("attempt 1"))
	if more := p.record(); more {
		t.Error("there is more to report")
	}
	wantRecorded(t, j, "Service default/web ServiceNotProgrammed: ClusterIP 10.96.0.1:80/TCP: attempt 1")
	for i := range 5 {
		w.failures[0].Err = fmt.Errorf("attempt %d", i+2)
		if more := p.record(); !more {
			t.Error("what waits is forgotten")
		}
	}
	wantRecorded(t, j)
	w.clock.Step(noteAge)
	p.record()
	wantRecorded(t, j, "Service default/web ServiceNotProgrammed: ClusterIP 10.96.0.1:80/TCP: attempt 6")
}

func TestEventsAreRateLimited(t *testing.T) {
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	for i := range 60 {
		object := model.Object{Kind: "Service", Namespace: "default", Name: fmt.Sprintf("s%d", i)}
		w.desired.Problems[object] = []model.Problem{problem("spec", "is odd")}
		w.runs(object)
	}
	var counts []int
	for more := true; more && len(counts) < 10; {
		more = p.record()
		counts = append(counts, len(j.taken()))
	}
	if diff := cmp.Diff([]int{maxEvents, maxEvents, 10}, counts); diff != "" {
		t.Errorf("Events at a time (-want +got):\n%s", diff)
	}
}

func TestCommitsWithoutProblemsDoNotWake(t *testing.T) {
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	awake := func() bool {
		select {
		case <-p.changed:
			return true
		default:
			return false
		}
	}
	refusal := dataplane.Result{Failed: map[plan.Key]error{keyOf("10.96.0.1"): errors.New("refused")}}
	tests := []struct {
		name    string
		refused bool // before
		change  *plan.Change
		result  dataplane.Result
		want    bool
	}{
		{"nothing wrong", false, set(frontend("10.96.0.1", web)), dataplane.Result{}, false},
		{"problems changed", false, &plan.Change{Problems: true}, dataplane.Result{}, true},
		{"a frontend refused", false, &plan.Change{}, refusal, true},
		{"a refused one may be over it", true, &plan.Change{}, dataplane.Result{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.refused.Store(tt.refused)
			p.Committed(&engine.Commit{Change: tt.change, Result: tt.result})
			p.Committed(&engine.Commit{Change: tt.change, Result: tt.result}) // must not wait
			if got := awake(); got != tt.want {
				t.Errorf("awake: %v", got)
			}
		})
	}
}

func TestProblemEventsReachTheAPIServerOnce(t *testing.T) {
	w, client := newWorld(t), fake.NewClientset()
	recorder, err := NewAPIRecorder(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := w.problems(recorder)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()

	add := func(object model.Object) {
		w.mu.Lock()
		w.desired.Problems[object] = []model.Problem{problem("spec", "is odd")}
		w.runs(object)
		w.mu.Unlock()
		p.Committed(&engine.Commit{Change: &plan.Change{Problems: true}})
	}
	add(model.Object{Kind: "Service", Namespace: "default", Name: "web"})
	recorded(t, client, 1)
	add(model.Object{Kind: "Service", Namespace: "post", Name: "mail"})
	recorded(t, client, 2)
	add(model.Object{Kind: "EndpointSlice", Namespace: "post", Name: "mail-1"})
	events := recorded(t, client, 3)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
	if len(events) != 3 {
		t.Errorf("there are %d Events about three objects", len(events))
	}
	for _, e := range events {
		if e.Series != nil {
			t.Errorf("recorded again: %s %s", e.Regarding.Name, e.Note)
		}
	}
}

func TestDelayedEventsAreRecordedLater(t *testing.T) {
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	for i := range maxEvents + 1 {
		object := model.Object{Kind: "Service", Namespace: "default", Name: fmt.Sprintf("s%d", i)}
		w.desired.Problems[object] = []model.Problem{problem("spec", "is odd")}
		w.runs(object)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	p.Committed(&engine.Commit{Change: &plan.Change{Problems: true}})
	testkit.Eventually(t, func() error {
		if !w.clock.HasWaiters() {
			return errors.New("it does not wait to report more")
		}
		return nil
	})
	if n := len(j.taken()); n != maxEvents {
		t.Errorf("%d Events at once", n)
	}
	w.clock.Step(eventsPause)
	testkit.Eventually(t, func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.events) != 1 {
			return fmt.Errorf("%d more Events, want 1", len(j.events))
		}
		return nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}

// A Service that asks for direct return in vain gets an Event that says why and what to do, on nodes that run an
// endpoint of it, and none while it has what it asks for.
func TestEventsOnServicesWithoutDirectReturn(t *testing.T) {
	w, j := newWorld(t), &journal{}
	p := w.problems(j)
	cfg := plan.Config{NodeName: "here", CanDirectReturn: true, DirectReturn: true}
	for _, tt := range []struct {
		policy model.TrafficPolicy
		runs   string // where its endpoint is
		want   []string
	}{
		{model.PolicyCluster, "here", nil},
		{model.PolicyLocal, "here", []string{"Service default/web PartlyIgnored: spec.externalTrafficPolicy: no direct return: " +
			"it is Local: clients outside get endpoints of the node that they ask, which see their addresses already (set it to Cluster, or remove the annotation)"}},
		{model.PolicyLocal, "elsewhere", nil},
	} {
		svc := enginetest.Service("default/web", "10.96.0.1", func(s *model.Service) {
			s.Direct, s.ExternalPolicy = "sluice/forwarding", tt.policy
			s.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
		})
		state, planner := model.NewState(), plan.New(cfg)
		var dirty model.Dirty
		state.Apply(&dirty, svc, enginetest.Slice(svc.Service, "10.244.1.1@"+tt.runs))
		planner.SetConfig(state, cfg)
		w.desired = *planner.Desired()
		p.record()
		wantRecorded(t, j, tt.want...)
	}
}
