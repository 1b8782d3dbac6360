package history

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func frontend(service, addr string, endpoints ...string) *plan.Frontend {
	f := &plan.Frontend{
		Key:     plan.Key{Addr: netip.MustParseAddr(addr), Port: 80, Protocol: model.TCP},
		Service: model.Name{Namespace: "default", Name: service},
	}
	for _, e := range endpoints {
		f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: netip.MustParseAddrPort(e)})
	}
	return f
}

func commit(change *plan.Change) *engine.Commit {
	return &engine.Commit{Kind: engine.Apply, Change: change, Events: engine.Events{Since: now.Add(-time.Second)}, Begin: now.Add(-3 * time.Millisecond), End: now}
}

// committer completes commits on their way to a History.
type committer struct {
	*History
	told enginetest.Told
}

func (c committer) Committed(commit *engine.Commit) { c.History.Committed(c.told.Complete(commit)) }

func newCommitter(o Options) committer { return committer{New(o), enginetest.Told{}} }

func TestLastCommits(t *testing.T) {
	h := newCommitter(Options{})
	h.Committed(&engine.Commit{Kind: engine.Repair, Change: &plan.Change{}})
	h.Committed(commit(&plan.Change{Set: []*plan.Frontend{frontend("e", "10.0.0.6")}}))
	for i := range maxCommits + 5 {
		c := commit(&plan.Change{
			Revision: uint64(i),
			Set:      []*plan.Frontend{frontend("a", "10.0.0.1"), frontend("a", "10.0.0.2"), frontend("b", "10.0.0.3"), frontend("c", "10.0.0.4"), frontend("d", "10.0.0.5")},
		})
		c.Result = dataplane.Result{Elements: 7, Failed: map[plan.Key]error{c.Change.Set[0].Key: errors.New("x")}}
		h.Committed(c)
	}
	h.Committed(commit(&plan.Change{Revision: 1000, Removed: []plan.Key{frontend("e", "10.0.0.6").Key}}))
	got := h.Commits()
	if len(got) != maxCommits || got[0].Revision != 1000 {
		t.Fatalf("%d commits, the first of revision %d", len(got), got[0].Revision)
	}
	if names := got[0].Services; !slices.Equal(names, []string{"default/e"}) {
		t.Errorf("the removal names %q, want the Service that lost the frontend", names)
	}
	want := Commit{At: now, Revision: maxCommits + 4, Services: []string{"default/a", "default/b", "default/c"}, More: 1,
		Set: 5, Failed: 1, Elements: 7, Took: 0.003, Latency: 1}
	if fmt.Sprint(got[1]) != fmt.Sprint(want) {
		t.Errorf("the commit before is %+v, want %+v", got[1], want)
	}
}

// texts returns kinds, Services and texts of Events.
func texts(events []Event) (out []string) {
	for _, e := range events {
		text, _, _ := strings.Cut(e.Text(), " (")
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Kind, e.Service, text)))
	}
	return out
}

// advancing is a clock that is later at each look. That of Windows stands still for up to 16 ms.
type advancing struct {
	clock.RealClock
	looks *atomic.Int64
}

func (a advancing) Now() time.Time {
	return a.RealClock.Now().Add(time.Duration(a.looks.Add(1)) * time.Microsecond)
}

func newHistory(t *testing.T) (*History, *enginetest.Engine) {
	var e *enginetest.Engine
	h := New(Options{Inspect: func(read func(engine.View)) { e.Inspect(read) }})
	e = enginetest.NewAt(t, advancing{looks: new(atomic.Int64)}, plan.Config{NodeName: "node1", MasqueradeBit: 14}, h)
	e.Start()
	return h, e
}

func TestEventsOfAService(t *testing.T) {
	h, e := newHistory(t)
	web, other := enginetest.Service("default/web", "10.96.0.1"), enginetest.Service("shop/cart", "10.96.0.2")
	e.Sync(web, enginetest.Slice(web.Service, "10.244.1.1@node1", "10.244.1.2@node1"))
	last := uint64(0)
	step := func(name string, event model.Event, want ...string) {
		t.Helper()
		e.Change(event)
		var got []Event
		got, last = h.Events(Query{After: last})
		if texts := texts(got); !slices.Equal(texts, want) {
			t.Errorf("%s:\n%q\nwant\n%q", name, texts, want)
		}
		for _, e := range got {
			if e.At.IsZero() || e.Latency <= 0 {
				t.Errorf("%s: %+v has no time", name, e)
			}
		}
	}
	step("start, and a new Service", other, "started  all Services programmed: 1 Service, 1 frontend", "service-added shop/cart Service added: 1 frontend, 0 endpoints")
	step("an endpoint more", enginetest.Slice(web.Service, "10.244.1.1@node1", "10.244.1.2@node1", "10.244.1.3@node2"),
		"endpoint-added default/web endpoint 10.244.1.3:8080 added")
	terminating := enginetest.Slice(web.Service, "10.244.1.1@node1", "10.244.1.2@node1", "10.244.1.3@node2")
	terminating.Endpoints[2].Conditions = model.Serving | model.Terminating
	step("one terminates", terminating, "endpoint-draining default/web endpoint 10.244.1.3:8080 gets no new connections: terminating while others are ready")
	step("one is gone, one not ready", func() model.Event {
		s := enginetest.Slice(web.Service, "10.244.1.1@node1", "10.244.1.2@node1")
		s.Endpoints[0].Conditions = 0
		return s
	}(), "endpoint-removed default/web endpoint 10.244.1.1:8080 removed: not ready", "endpoint-removed default/web endpoint 10.244.1.3:8080 removed")
	step("session affinity", enginetest.Service("default/web", "10.96.0.1", func(s *model.Service) { s.Affinity = 60 }),
		"service-changed default/web Service changed: other session affinity")
	step("another address", enginetest.Service("default/web", "10.96.0.9", func(s *model.Service) { s.Affinity = 60 }),
		"service-changed default/web Service changed: added ClusterIP 10.96.0.9:80/TCP; removed ClusterIP 10.96.0.1:80/TCP")
	step("removed", model.DeleteService{Name: web.Name}, "service-removed default/web Service removed")

	if got, _ := h.Events(Query{Namespace: "shop"}); len(got) != 1 || got[0].Service != "shop/cart" {
		t.Errorf("of namespace shop: %q", texts(got))
	}
	if got, _ := h.Events(Query{Service: web.Name.String(), Last: 1}); len(got) != 1 || got[0].Kind != ServiceRemoved {
		t.Errorf("the last of web: %q", texts(got))
	}
}

func TestEventsOfFailuresAndRepairs(t *testing.T) {
	h := newCommitter(Options{})
	h.Committed(commit(&plan.Change{}))
	failing := commit(&plan.Change{Set: []*plan.Frontend{frontend("a", "10.0.0.1", "10.1.0.1:80")}})
	failing.Result.Failed = map[plan.Key]error{failing.Change.Set[0].Key: errors.New("no memory")}
	h.Committed(failing)
	h.Committed(&engine.Commit{Kind: engine.Repair, Change: &plan.Change{}, End: now})
	h.Committed(commit(&plan.Change{Settings: &plan.Settings{}}))
	silent, proven := directTo(model.PathSilent), directTo(model.PathProven)
	silent.MasqueradeMark, proven.MasqueradeMark = 1, 1
	for _, s := range []*plan.Settings{silent, silent, proven} { // what is the same for people is told once
		h.Committed(commit(&plan.Change{Settings: s}))
	}
	got, _ := h.Events(Query{After: 1})
	want := []string{"service-added default/a Service added: 1 frontend, 1 endpoint", "failed default/a the kernel refused 10.0.0.1:80/TCP: no memory",
		"repaired  rules repaired", "node-changed  node changed: addresses, pod detection or ranges of Services",
		"node-changed  node changed: addresses, pod detection or ranges of Services",
		"node-changed  node changed: packets with direct return are handed to 1 of 1 other node"}
	if !slices.Equal(texts(got), want) {
		t.Errorf("%q\nwant\n%q", texts(got), want)
	}
}

// directTo are settings with direct return and one other node.
func directTo(s model.PathState) *plan.Settings {
	far := plan.DirectNode{Name: "far", IPv4: model.Path{Addr: netip.MustParseAddr("192.0.2.2"), State: s}}
	return &plan.Settings{DirectReturn: &plan.DirectReturn{Nodes: []plan.DirectNode{far}}}
}

func TestLargeCommitLeavesRoom(t *testing.T) {
	h := newCommitter(Options{})
	h.Committed(commit(&plan.Change{}))
	h.Committed(commit(&plan.Change{Set: []*plan.Frontend{frontend("first", "10.0.0.1")}}))
	large := &plan.Change{}
	for i := range 2 * maxChanges {
		large.Set = append(large.Set, frontend(fmt.Sprint("s", i), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()))
	}
	h.Committed(commit(large))
	got, _ := h.Events(Query{})
	if len(got) != 2+maxPerCommit+1 || got[1].Service != "default/first" {
		t.Fatalf("%d events", len(got))
	}
	if last := got[len(got)-1]; last.Kind != More || last.Detail != fmt.Sprintf("%d other changes in the same commit", 2*maxChanges-maxPerCommit) {
		t.Errorf("the last is %+v", last)
	}
}

func TestEventsAreBounded(t *testing.T) {
	h := newCommitter(Options{})
	for i := range maxChanges + 10 {
		h.Committed(commit(&plan.Change{Set: []*plan.Frontend{frontend("a", "10.0.0.1", fmt.Sprintf("10.1.0.%d:80", i%2+1))}}))
	}
	got, last := h.Events(Query{})
	if len(got) != maxChanges || got[len(got)-1].ID != last || !slices.IsSortedFunc(got, func(a, b Event) int { return int(a.ID) - int(b.ID) }) {
		t.Errorf("%d events, the last %d of %d", len(got), got[len(got)-1].ID, last)
	}
}

// A Service that refuses all the time is one Event per period, and no packet is lost.
func TestRefusalsAreSummedUp(t *testing.T) {
	clock := clocktesting.NewFakeClock(now)
	h := New(Options{Clock: clock})
	web := model.Name{Namespace: "default", Name: "web"}
	packets := func() (n uint64, events int) {
		got, _ := h.Events(Query{})
		for _, e := range got {
			if e.Kind != Refused || e.Service != "default/web" || e.Reason != "no-endpoints" {
				t.Errorf("unexpected %+v", e)
			}
			n += e.Packets
		}
		return n, len(got)
	}
	for range 30 {
		h.Refused(web, plan.NoEndpoints, 2, clock.Now().Add(-time.Second))
		clock.Step(time.Second)
	}
	if n, events := packets(); events > 4 || n < 40 {
		t.Errorf("%d packets in %d events, want one event per %v", n, events, refusalPeriod)
	}
	clock.Step(refusalPeriod)
	if n, _ := packets(); n != 60 {
		t.Errorf("%d packets in the end, want 60", n)
	}
	clock.Step(refusalPeriod)
	if packets(); len(h.refusing) != 0 {
		t.Errorf("%d Services are remembered that refuse nothing", len(h.refusing))
	}
}

func BenchmarkEndpointChange(b *testing.B) {
	h := newCommitter(Options{})
	start := &plan.Change{}
	for i := range 10_000 {
		start.Set = append(start.Set, frontend(fmt.Sprint("s", i), netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String(), "10.1.0.1:80"))
	}
	h.Committed(commit(start))
	h.Commits()
	for i := range b.N {
		h.Committed(commit(&plan.Change{Set: []*plan.Frontend{frontend("s7", "10.0.0.7", fmt.Sprintf("10.1.0.%d:80", i%2+1))}}))
		h.Commits()
	}
}
