package status

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/history"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestReportOfAnEngine(t *testing.T) {
	e := enginetest.New(t, plan.Config{}) // it does not run
	e.AddSource("host")
	r := New(Options{
		Engine: e.Engine, History: history.New(history.Options{}), Clock: clocktesting.NewFakePassiveClock(now),
		Verdict:  func() verdict.Proxy { return verdict.OfProxy(verdict.Facts{Summary: e.Status(), Now: now}) },
		Verdicts: func() map[model.Name]verdict.Service { return nil },
		Leaving:  func() string { return "it is tainted" },
		Version:  "v1", Mode: "test", ModeReason: "nobody chose", Node: "here",
		Advisories: func() []model.Problem {
			return []model.Problem{{Object: model.Object{Kind: "iptables"}, Field: "FORWARD", Reason: "drops", Remedy: "accept"}}
		},
	}).Report()
	text := written(t, r)
	for _, want := range []string{"Sluice v1 on node here: test mode, kernel ", "nobody chose", "WARNING    iptables: FORWARD: drops (accept)", "NOT YET, NOT ELIGIBLE for new connections: it is tainted",
		"Not yet: Waiting for host, test", "waiting for host, test", "last written never"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// Nodes that packets are not handed to are counted and named, with the reason.
func TestDirectReturnIsReported(t *testing.T) {
	e := enginetest.New(t, plan.Config{NodeName: "here", CanDirectReturn: true, DirectReturn: true})
	e.Start()
	web := enginetest.Service("default/web", "10.96.0.1", func(s *model.Service) {
		s.Direct, s.ExternalIPs = "sluice/forwarding", []netip.Addr{netip.MustParseAddr("198.51.100.1")}
	})
	peer := func(name, ip string) model.Event {
		return model.SetPeer{Peer: &model.Peer{Name: name, IPs: []netip.Addr{netip.MustParseAddr(ip)}}}
	}
	e.Sync(web, enginetest.Slice(web.Service, "10.1.0.1@a"), peer("a", "192.0.2.1"), peer("b", "192.0.2.2"),
		model.SetPaths{Paths: []model.Path{{Addr: netip.MustParseAddr("192.0.2.1"), State: model.PathProven}, {Addr: netip.MustParseAddr("192.0.2.2"), State: model.PathFiltered}}})
	r := New(Options{Engine: e.Engine, History: history.New(history.Options{}), Clock: clocktesting.NewFakePassiveClock(now),
		Received: func() map[string]uint64 {
			return map[string]uint64{"a": 1, "b": 12, "c": 0, "d": 5, "e": 5, "f": 4, "g": 3}
		},
		Verdict: func() verdict.Proxy { return verdict.Proxy{Word: verdict.Serving} }, Verdicts: func() map[model.Name]verdict.Service { return nil }, Leaving: func() string { return "" }}).Report()
	text := written(t, r)
	for _, want := range []string{"received: 12 connections from b, 5 connections from d, 5 connections from e, 4 connections from f, 3 connections from g, and 1 more\n",
		"1 frontend through auto, handed to 1 of 2 other nodes (IPv4)", "not b (IPv4): what it sends with an address that is not its own does not arrive"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if first := (NodeReceived{"b", 12}); len(r.DirectReturn.Received) != 6 || r.DirectReturn.Received[0] != first {
		t.Errorf("of connections from other nodes the report has %v", r.DirectReturn.Received)
	}
	if d := r.DirectReturn; d == nil || d.Frontends != 1 || d.Nodes["IPv4"]["proven"] != 1 || d.Nodes["IPv4"]["filtered"] != 1 || len(d.NotUsed) != 1 {
		t.Errorf("the report has %+v", d)
	}
}

// Slices that no Service uses are counted, and those that lack the label are named.
func TestSlicesWithoutServiceAreNamed(t *testing.T) {
	e := enginetest.New(t, plan.Config{})
	e.Start()
	slice := func(name, service string) model.SetSlice {
		return model.SetSlice{Slice: &model.Slice{Name: model.Name{Namespace: "default", Name: name}, Service: service, Family: model.IPv4}}
	}
	web := enginetest.Service("default/web", "10.96.0.1")
	e.Sync(web, slice("web-1", "web"), slice("stray", ""), slice("other-1", "other"))
	text := written(t, New(Options{Engine: e.Engine, History: history.New(history.Options{}), Clock: clocktesting.NewFakePassiveClock(now),
		Verdict: func() verdict.Proxy { return verdict.Proxy{Word: verdict.Serving} }, Verdicts: func() map[model.Name]verdict.Service { return nil }, Leaving: func() string { return "" }}).Report())
	for _, want := range []string{"2 more slices not used", "without the label: default/stray\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// hostileText is the name of an object.
const hostileText = "\x1b[2J\r\n\u202e<b>"

// full is a report with something in every field.
func full() *Report {
	r := &Report{
		Version: "v1", Kernel: "6.1", Mode: "nftables", Node: "here", Now: now, Started: now.Add(-time.Hour),
		Proxy: verdict.Proxy{Word: verdict.Serving}, Healthy: true, Synced: true, DesiredRevision: 9, ProgrammedRevision: 8,
		Services: 3, Slices: 4, Endpoints: 5, Frontends: Frontends{45_000, 44_000, 999, 30},
		Relay:        &Relay{Connections: 1, Limit: 5000},
		Evidence:     &Evidence{At: now.Add(-2 * time.Second), Interval: 3, Blind: hostileText},
		Draining:     &dataplane.Draining{Connections: 7, Services: 1, Until: now.Add(time.Minute)},
		Writing:      &Writing{Since: now.Add(-3 * time.Second), Done: 15_000, Total: 45_000, Transactions: 4},
		FailingSince: now.Add(-time.Minute), LastError: "no buffer space " + hostileText,
		LastCommit: now.Add(-time.Second), LastVerified: now.Add(-time.Second), ProblemCount: 31,
	}
	r.ByVerdict = map[verdict.Word]int{verdict.NoAnswer: 28, verdict.Works: 2}
	for range 20 {
		r.Broken = append(r.Broken, Broken{Service: hostileText, Verdict: verdict.NoAnswer, Why: hostileText})
		r.Advisories = append(r.Advisories, model.Problem{Object: model.Object{Kind: hostileText}, Reason: "is odd", Remedy: hostileText})
		r.Failures = append(r.Failures, Failure{Frontend: "10.0.0.1:80/TCP", Service: hostileText, Error: "refused", Since: now, Attempts: 3, Retry: now.Add(time.Second)})
		r.Problems = append(r.Problems, model.Problem{Object: model.Object{Kind: "Service", Name: hostileText}, Field: "spec.x", Reason: "is odd"})
		r.Changes = append(r.Changes, Change{At: now, Services: []string{hostileText}, Set: 1, Elements: 2, Took: 0.002, Latency: 0.0035, Failed: 1})
	}
	return r
}

func written(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportFitsOnAScreen(t *testing.T) {
	text := written(t, full())
	lines := strings.Split(text, "\n")
	if len(lines) > 70 {
		t.Errorf("%d lines", len(lines))
	}
	for _, want := range []string{"up 1h0m0s, serving", "does not answer: ", "and 20 more, which kube-proxy services --failing lists", "28 does not answer, 2 works", "[##########....................] 15000 of 45000 frontends, 4 transactions, for 3s",
		"44000 programmed, 999 pending, 30 failed, of 45000", "revision   9, programmed 8", "and 22 more", "1 FAILED; 2 elements in 2ms, 4ms after the event",
		"forwarding 1 connection through this process, at most 5000",
		"answers    connections looked at 2s ago, every 3s\n", "NOT SEEN: which connections endpoints refuse: ",
		"draining   7 connections of an earlier kube-proxy at 1 virtual service, until " + now.Add(time.Minute).UTC().Format(time.TimeOnly) + " UTC",
		"left out of objects: 31", "and 23 more"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if at, other := strings.Index(text, "FAILING"), strings.Index(text, "sources"); at < 0 || at > other {
		t.Errorf("failures are not on top:\n%s", text)
	}
}

func TestHostileNamesStayText(t *testing.T) {
	r := full()
	for line := range strings.Lines(written(t, r)) {
		for _, c := range strings.TrimSuffix(line, "\n") {
			if !unicode.IsPrint(c) {
				t.Fatalf("%q is in %q", c, line)
			}
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil || back.Problems[0] != r.Problems[0] {
		t.Errorf("JSON gives %+v back, %v", back.Problems, err)
	}
}

func TestReportOfTheAPIServer(t *testing.T) {
	since := now.Add(-time.Minute)
	for _, test := range []struct {
		name string
		is   *APIServer
		want []string // parts of the text
	}{
		{"none", nil, nil},
		{"connected", &APIServer{Connected: true, Since: since}, []string{"API server connected for 1m0s"}},
		{"not yet", &APIServer{Since: since, WaitingFor: []string{"Node", "Service"}},
			[]string{"API server NOT CONNECTED: the API server has not answered yet, for 1m0s", "waiting for all of Node, Service"}},
		{"not any more", &APIServer{Since: since, Error: "connection refused"},
			[]string{"API server NOT CONNECTED: the API server has not been reachable for 1m0s: connection refused"}},
		{"without a kind", &APIServer{Connected: true, Since: since, Without: []Absence{{"ServiceCIDR", "it is denied", "allow it"}}},
			[]string{"going on without ServiceCIDRs: it is denied (allow it)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := written(t, &Report{Now: now, APIServer: test.is})
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			if test.is == nil && strings.Contains(text, "API server") {
				t.Errorf("there is one in\n%s", text)
			}
		})
	}
}
