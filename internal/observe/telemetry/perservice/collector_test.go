package perservice

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	sluice "sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

const (
	connections = "sluice_service_connections_total"
	refused     = "sluice_service_refused_packets_total"
	allRefused  = "sluice_refused_packets_total"
	endpoints   = "sluice_service_endpoints"
	programming = "sluice_service_programming_seconds"
	failed      = "sluice_service_failed_frontends"
	failures    = "sluice_service_failures_total"

	ofWeb  = `namespace="default",service="web"`
	ofPost = `namespace="post",service="mail"`
	ofAll  = `namespace="_other_",service="_other_"`
	atHTTP = `,port="http",protocol="TCP"} `
)

func TestConnectionsOfAllAddressesOfAPort(t *testing.T) {
	w := newWorld(t)
	w.want(connections)
	w.begin(at("10.96.0.1", web), at("fd00::1", web), at("10.96.0.2", post))
	w.sees("10.96.0.1", 3)
	w.sees("fd00::1", 4)
	w.sees("10.96.0.2", 5)
	w.sees("10.96.0.9", 9) // in the kernel still, and nobody's by now
	w.scrape(connections)  // the first one says where they stand
	w.more()
	w.want(connections, ofWeb+atHTTP+"2", ofPost+atHTTP+"1")
}

func TestEarlierCountsAreNotCounted(t *testing.T) {
	w := newWorld(t)
	w.sees("10.96.0.1", 1000, 50)
	w.unmatched = dataplane.UnmatchedTraffic{NoSuchPort: 7}
	w.begin(at("10.96.0.1", web))
	w.want(connections, ofWeb+atHTTP+"0")
	w.want(refused)
	w.sees("10.96.0.1", 1001, 52)
	w.unmatched.NoSuchPort, w.unmatched.UnusedAddress = 8, 1
	w.want(connections, ofWeb+atHTTP+"1")
	w.want(refused, ofWeb+`,reason="no-endpoints"} 2`)
	w.want(allRefused, `reason="no-endpoints"} 2`, `reason="no-local-endpoints"} 0`, `reason="no-such-port"} 1`,
		`reason="source-ranges"} 0`, `reason="unused-address"} 1`)
}

func TestConnectionsAreMonotonic(t *testing.T) {
	w := newWorld(t)
	w.begin()
	w.set(at("10.96.0.1", web), at("192.0.2.1", web))
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"at first", func() { w.sees("10.96.0.1", 100); w.sees("192.0.2.1", 10) }, "110"},
		{"an address is taken away", func() { w.remove("192.0.2.1"); w.sees("10.96.0.1", 101) }, "111"},
		{"the kernel counts anew", func() { w.sees("10.96.0.1", 2) }, "113"},
		{"the address comes back", func() { w.set(at("192.0.2.1", web)); w.sees("192.0.2.1", 1) }, "114"},
		{"all addresses are exchanged", func() {
			w.commit(&plan.Change{Set: []*plan.Frontend{at("10.96.0.7", web)}, Removed: []plan.Key{keyOf("10.96.0.1"), keyOf("192.0.2.1")}}, nil)
			clear(w.traffic)
			w.sees("10.96.0.7", 6)
		}, "120"},
		{"the kernel does not answer", func() { w.readErr = errors.New("interrupted") }, "120"},
		{"the kernel does not report it", func() { w.readErr = nil; clear(w.traffic) }, "120"},
	}
	for _, step := range steps {
		step.do()
		if got := strings.Join(w.scrape(connections), " "); got != ofWeb+atHTTP+step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

func TestPacketsAreNotCountedTwice(t *testing.T) {
	w := newWorld(t)
	w.begin()
	w.set(at("10.96.0.1", web))
	w.traffic[keyOf("10.96.0.1")] = dataplane.Traffic{Attempts: 10, Connections: 10} // refusals were read before
	w.want(connections, ofWeb+atHTTP+"10")
	w.traffic[keyOf("10.96.0.1")] = dataplane.Traffic{Attempts: 11, Connections: 9, Refused: [3]int64{0, 0, 2}}
	w.want(connections, ofWeb+atHTTP+"10")
	w.sees("10.96.0.1", 12, 0, 0, 2)
	w.want(connections, ofWeb+atHTTP+"12")
	w.want(refused, ofWeb+`,reason="source-ranges"} 2`)
}

func TestFrontendThatChangesOwner(t *testing.T) {
	w := newWorld(t)
	w.begin()
	w.set(at("192.0.2.1", web), at("10.96.0.1", web))
	w.sees("192.0.2.1", 5)
	w.sees("10.96.0.1", 1)
	w.want(connections, ofWeb+atHTTP+"6")
	w.set(at("192.0.2.1", post))
	w.sees("192.0.2.1", 7)
	w.want(connections, ofWeb+atHTTP+"6", ofPost+atHTTP+"2")
}

func TestServicesThatSwapFrontends(t *testing.T) {
	tests := []struct {
		name   string
		change *plan.Change
	}{
		{"one gets the only frontend of the other, which gets another", &plan.Change{
			Set: []*plan.Frontend{at("10.96.0.1", post), at("10.96.0.3", web)}, Removed: []plan.Key{keyOf("10.96.0.2")},
		}},
		{"they swap", &plan.Change{Set: []*plan.Frontend{at("10.96.0.1", post), at("10.96.0.2", web)}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.begin()
			w.set(at("10.96.0.1", web), at("10.96.0.2", post))
			w.sees("10.96.0.1", 5)
			w.sees("10.96.0.2", 7)
			w.want(connections, ofWeb+atHTTP+"5", ofPost+atHTTP+"7")
			w.commit(test.change, nil)
			w.want(connections, ofWeb+atHTTP+"5", ofPost+atHTTP+"7")
		})
	}
}

func TestRemovedServiceStartsAtZero(t *testing.T) {
	w := newWorld(t)
	w.begin()
	w.set(at("10.96.0.1", web))
	w.sees("10.96.0.1", 5, 1)
	w.want(connections, ofWeb+atHTTP+"5")
	w.remove("10.96.0.1")
	w.want(connections)
	w.want(refused)
	w.set(at("10.96.0.1", web))
	w.sees("10.96.0.1", 1)
	w.want(connections, ofWeb+atHTTP+"1")
	w.want(allRefused, `reason="no-endpoints"} 1`, `reason="no-local-endpoints"} 0`, `reason="no-such-port"} 0`,
		`reason="source-ranges"} 0`, `reason="unused-address"} 0`)
}

func TestScrapesInOneSecondReadOnce(t *testing.T) {
	w := newWorld(t)
	w.begin(at("10.96.0.1", web))
	w.sees("10.96.0.1", 5)
	before := w.reads
	for range 3 {
		w.now(connections)
		w.clock.Step(countersAge / 4)
	}
	if w.reads != before+1 {
		t.Errorf("the kernel was asked %d times", w.reads-before)
	}
	w.scrape(connections)
	if w.reads != before+2 {
		t.Errorf("the kernel was asked %d times, a second later", w.reads-before)
	}
}

func TestReadErrorIsLoggedOnce(t *testing.T) {
	logged := 0
	w := newWorld(t, func(o *Options) {
		o.Logger = funcr.New(func(_, line string) {
			if strings.Contains(line, "Cannot read") {
				logged++
			}
		}, funcr.Options{})
	})
	w.readErr = errors.New("dump interrupted")
	w.begin(at("10.96.0.1", web))
	for range 3 {
		w.want(connections)
	}
	w.readErr = nil
	w.sees("10.96.0.1", 5)
	w.want(connections, ofWeb+atHTTP+"0") // only now is it known where it stands
	if logged != 1 {
		t.Errorf("logged %d times", logged)
	}
}

func TestServicesBeyondTheLimitShareSeries(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Limit = 1 })
	third := sluice.Name{Namespace: "default", Name: "third"}
	w.begin()
	w.set(at("10.96.0.1", web), at("10.96.0.2", post), at("10.96.0.3", third))
	for addr, n := range map[string]int64{"10.96.0.1": 1, "10.96.0.2": 20, "10.96.0.3": 300} {
		w.sees(addr, n, n)
	}
	const atOther = `,port="_other_",protocol="_other_"} `
	w.want("sluice_services", `series="own"} 1`, `series="shared"} 2`)
	w.want(connections, ofAll+atOther+"320", ofWeb+atHTTP+"1")
	w.want(refused, ofAll+`,reason="no-endpoints"} 320`, ofWeb+`,reason="no-endpoints"} 1`)

	w.remove("10.96.0.1") // another one takes its place
	w.more()
	w.want("sluice_services", `series="own"} 1`, `series="shared"} 1`)
	w.want(connections, ofAll+atOther+"321", `namespace="default",service="third"`+atHTTP+"1")

	w.remove("10.96.0.3", "10.96.0.2") // what was counted stands
	w.want("sluice_services", `series="own"} 0`, `series="shared"} 0`)
	w.want(connections, ofAll+atOther+"321")
}

func TestOffLeavesSharedMetrics(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Off = true })
	w.begin()
	w.set(at("10.96.0.1", web))
	w.sees("10.96.0.1", 5, 0, 3)
	for _, metric := range []string{"sluice_services", connections, refused, endpoints, programming, failures} {
		w.want(metric)
	}
	w.want(allRefused, `reason="no-endpoints"} 0`, `reason="no-local-endpoints"} 3`, `reason="no-such-port"} 0`,
		`reason="source-ranges"} 0`, `reason="unused-address"} 0`)
}

func TestModeWithoutCounters(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Traffic = nil })
	w.begin()
	w.set(at("10.96.0.1", web))
	for _, metric := range []string{allRefused, refused, connections} {
		w.want(metric)
	}
	w.want("sluice_services", `series="own"} 1`, `series="shared"} 0`)
}

func TestEndpointsAreRecounted(t *testing.T) {
	w := newWorld(t)
	w.begin(at("10.96.0.1", web))
	change := func(everything bool, conditions ...sluice.Conditions) {
		s := &sluice.Slice{Name: sluice.Name{Namespace: "default", Name: "web-a"}, Service: "web", Family: sluice.IPv4,
			Ports: []sluice.SlicePort{{Name: "http", Protocol: sluice.TCP, Port: 8080}}}
		for i, c := range conditions {
			s.Endpoints = append(s.Endpoints, sluice.Endpoint{Addr: keyOf("10.1.0.1").Addr, Conditions: c})
			for range i {
				s.Endpoints[i].Addr = s.Endpoints[i].Addr.Next()
			}
		}
		var dirty sluice.Dirty
		w.state.Apply(&dirty, sluice.SetSlice{Slice: s})
		w.planner.Update(w.state, &dirty)
		events := engine.Events{Touched: dirty.Services}
		if everything {
			events = engine.Events{Everything: true}
		}
		w.commitFor(events)
	}
	w.state.Apply(&sluice.Dirty{}, sluice.SetService{Service: &sluice.Service{Name: web,
		ClusterIPs: []netip.Addr{keyOf("10.96.0.1").Addr}, Ports: []sluice.ServicePort{{Name: "http", Protocol: sluice.TCP, Port: 80}}}})
	ready := sluice.Ready | sluice.Serving
	change(false, ready, ready)
	w.want(endpoints, ofWeb+`,state="ready"} 2`, ofWeb+`,state="used"} 2`)
	change(false, ready, sluice.Serving|sluice.Terminating, 0)
	w.want(endpoints, ofWeb+`,state="left_out"} 2`, ofWeb+`,state="ready"} 1`, ofWeb+`,state="terminating"} 1`, ofWeb+`,state="used"} 1`)
	change(true)
	w.want(endpoints, ofWeb+`,state="ready"} 0`, ofWeb+`,state="used"} 0`)
}

func TestProgrammingTimeOfTheLastChange(t *testing.T) {
	w := newWorld(t)
	w.begin(at("10.96.0.2", post))
	w.want(programming) // nothing came in for it
	since := w.clock.Now()
	w.clock.Step(1500 * time.Millisecond)
	w.commitFor(engine.Events{Since: since}, at("10.96.0.1", web))
	w.want(programming, ofWeb+"} 1.5")
	w.commitFor(engine.Events{Since: w.clock.Now()}, at("10.96.0.1", web))
	w.want(programming, ofWeb+"} 0")
}

func TestFailedFrontendsAndFailures(t *testing.T) {
	w := newWorld(t)
	w.begin(at("10.96.0.2", post))
	w.want(failed)
	w.want(failures)
	a, b := at("10.96.0.1", web), at("192.0.2.1", web)
	w.commit(&plan.Change{Set: []*plan.Frontend{a, b}}, map[plan.Key]error{a.Key: errRefused, b.Key: errRefused})
	w.want(failed, ofWeb+"} 2")
	w.commit(&plan.Change{Set: []*plan.Frontend{a, b}}, map[plan.Key]error{b.Key: errRefused})
	w.want(failed, ofWeb+"} 1")
	w.want(failures, ofWeb+"} 3")
	w.remove("192.0.2.1")
	w.want(failed)
	w.want(failures, ofWeb+"} 3")
}

// parse reads the text as Prometheus does.
func (w *world) parse() map[string]*dto.MetricFamily {
	w.t.Helper()
	var text strings.Builder
	if err := w.collector.Write(&text); err != nil {
		w.t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		w.t.Fatalf("%v in\n%s", err, text.String())
	}
	return families
}

// eventful is a world with a value of every metric, for a Service of that name.
func eventful(t *testing.T, name sluice.Name) *world {
	w := newWorld(t)
	w.begin()
	f := at("10.96.0.1", name)
	w.commitFor(engine.Events{Since: morning}, f)
	w.commit(&plan.Change{Set: []*plan.Frontend{f}}, map[plan.Key]error{f.Key: errRefused})
	w.sees("10.96.0.1", 1<<60, 1, 2, 3)
	return w
}

// TestMetricsArePinned pins the metrics of dashboards and alerts.
func TestMetricsArePinned(t *testing.T) {
	pinned, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(pinned), "\n")
	var got strings.Builder
	w := eventful(t, web)
	w.collector.Verdicts = func() map[sluice.Name]verdict.Service {
		return map[sluice.Name]verdict.Service{web: {Word: verdict.NoAnswer, Cause: verdict.EndpointSilent}}
	}
	w.collector.Answers = func() map[evidence.To]evidence.Report {
		at := netip.MustParseAddrPort("10.244.0.1:80")
		return map[evidence.To]evidence.Report{{AddrPort: at, Protocol: sluice.TCP}: {State: evidence.Silent, Failed: 3}, {AddrPort: at, Protocol: sluice.SCTP}: {}}
	}
	families := w.parse()
	if n := len(families["sluice_endpoint_failed_attempts"].GetMetric()); n != 1 {
		t.Errorf("%d endpoints have a series, want the one that does not answer", n)
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		words := []string{}
		for _, l := range families[name].GetMetric()[0].GetLabel() {
			words = append(words, l.GetName())
		}
		slices.Sort(words)
		fmt.Fprintln(&got, name, strings.ToLower(families[name].GetType().String()), strings.Join(words, " "))
		if help := families[name].GetHelp(); !strings.HasPrefix(help, "[ALPHA] ") {
			t.Errorf("%s is of another stability: %q", name, help)
		}
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestStrangeNamesAreEscaped(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"with signs of the format", "a\"b\\c\nd}", "a\"b\\c\nd}"},
		{"in another script", "größe", "größe"},
		{"that are no text", "a\xffb", "a\uFFFDb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			families := eventful(t, sluice.Name{Namespace: tt.in, Name: "web"}).parse()
			labels := families[refused].GetMetric()[0].GetLabel()
			if got := labels[0].GetValue(); got != tt.want {
				t.Errorf("the namespace reads as %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRunProcessesCommits(t *testing.T) {
	w := newWorld(t)
	ended := make(chan error)
	go func() { ended <- w.collector.Run(t.Context()) }()
	for i := range 100 {
		w.set(at("10.96.0.1", web))
		if i%10 == 0 {
			w.now(connections)
		}
	}
	testkit.Eventually(t, func() (err error) {
		w.collector.queue.Put(func(all *[]*engine.Commit) bool {
			if left := len(*all); left > 0 {
				err = fmt.Errorf("%d commits were not worked off", left)
			}
			return false
		})
		return err
	})
}

func TestScrapesKeepNoMemory(t *testing.T) {
	w := newWorld(t)
	w.begin(w.many(2000)...)
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	scrape := func() {
		w.more()
		w.clock.Step(countersAge)
		if err := w.collector.Write(io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	scrape()
	before := used()
	for range 50 {
		scrape()
	}
	// The text of one scrape is longer than this.
	if after := used(); after > before+200<<10 {
		t.Errorf("50 scrapes keep %d bytes", after-before)
	}
	runtime.KeepAlive(w)
}

func BenchmarkWrite(b *testing.B) {
	w := newWorld(b, func(o *Options) { o.Limit = 1 << 20 })
	w.begin(w.many(10_000)...)
	b.ReportAllocs()
	for b.Loop() {
		w.clock.Step(countersAge)
		if err := w.collector.Write(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCommitted(b *testing.B) {
	w := newWorld(b)
	w.begin(w.many(10_000)...)
	change := &plan.Change{Set: []*plan.Frontend{at("10.0.0.1", web)}}
	b.ReportAllocs()
	for b.Loop() {
		w.commit(change, nil)
		w.collector.processQueue()
	}
}

// Refusals are reported once, summed up by Service and cause, whoever reads the counters.
func TestRefusalsAreReported(t *testing.T) {
	var got []string
	w := newWorld(t, func(o *Options) {
		o.Limit = 0 // also of Services without series of their own
		o.Refused = func(service sluice.Name, why plan.Cause, packets uint64, since time.Time) {
			got = append(got, fmt.Sprint(service, " ", why, " ", packets, " ", clockTime(since)))
		}
	})
	w.begin(at("10.0.0.1", web), at("10.0.0.2", web), at("10.0.0.3", post))
	w.sees("10.0.0.1", 0, 2)
	w.sees("10.0.0.2", 5, 3)
	w.sees("10.0.0.3", 0, 0, 0, 4)
	w.collector.Refresh() // the base of these frontends
	got = nil
	w.clock.Step(countersAge)
	w.sees("10.0.0.1", 0, 4)
	w.sees("10.0.0.2", 5, 4)
	w.sees("10.0.0.3", 1, 0, 0, 5)
	w.unmatched.NoSuchPort = 7
	read := map[plan.Key]dataplane.Traffic{}
	if _, err := w.collector.Read(t.Context(), func(k plan.Key, t dataplane.Traffic) { read[k] = t }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.traffic, read); diff != "" {
		t.Errorf("another reader sees (-want +got):\n%s", diff)
	}
	w.clock.Step(countersAge)
	w.collector.Refresh()
	slices.Sort(got)
	since := clockTime(morning.Add(countersAge))
	if want := []string{"/ no-such-port 7 " + since, "default/web no-endpoints 3 " + since, "post/mail source-ranges 1 " + since}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

func clockTime(t time.Time) string { return t.Format("15:04:05") }

// Before the first commit nobody knows whose the counters are.
func TestReadersMayComeBeforeTheFirstCommit(t *testing.T) {
	w := newWorld(t)
	w.sees("10.0.0.1", 7)
	read := 0
	if _, err := w.collector.Read(t.Context(), func(plan.Key, dataplane.Traffic) { read++ }); err != nil || read != 1 {
		t.Errorf("read %d counters: %v", read, err)
	}
	w.begin(at("10.0.0.1", web))
	w.sees("10.0.0.1", 9)
	w.want(connections, ofWeb+atHTTP+"2")
}
