package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

func TestAnswersNameCauseAndRemedy(t *testing.T) {
	filtered := func(ranges ...string) func(*model.Service) {
		return func(s *model.Service) {
			external(s)
			s.Filtered = true
			for _, r := range ranges {
				s.SourceRanges = append(s.SourceRanges, netip.MustParsePrefix(r))
			}
		}
	}
	externalLocal := func(s *model.Service) { external(s); s.ExternalPolicy = model.PolicyLocal }
	tests := []struct {
		name     string
		in       []model.Event
		to, from string
		verdict  verdict.Word
		cause    string
		flows    bool
		want     []string
	}{
		{name: "a pod is served", in: []model.Event{service(), endpoints("here", "far")}, to: "default/web", verdict: "works", cause: "frontend", flows: true,
			want: []string{"a pod, recognised by source addresses in 10.1.0.0/16", "2 of 2 endpoints, those that are ready", "the client is a pod", "unless it is the client itself"}},
		{name: "by an only endpoint", in: []model.Event{service(), endpoints("here")}, to: "default/web", verdict: "works", cause: "frontend", flows: true,
			want: []string{"since internalTrafficPolicy is Cluster: the only endpoint, which is ready", "choice         the only one, 10.1.0.1:8080\n"}},
		{name: "by its name alone", in: []model.Event{service(), endpoints("here")}, to: "web:http", verdict: "works", cause: "frontend", flows: true,
			want: []string{"Service default/web:http at 10.96.0.1:80/TCP from a pod\n"}},
		{name: "by a name that is only similar", in: []model.Event{service(), endpoints("here")}, to: "wbe", verdict: "no-such-service", cause: "no-such-service",
			want: []string{"note           did you mean default/web?"}},
		{name: "by a node port", in: []model.Event{service(external), endpoints("here")}, to: "30080", from: "outside", verdict: "works", cause: "frontend", flows: true,
			want: []string{"Service default/web:http at 192.0.2.1:30080/TCP from outside\n"}},
		{name: "by a node port after a colon", in: []model.Event{service(external), endpoints("here")}, to: ":30080/tcp", verdict: "works", cause: "frontend", flows: true,
			want: []string{"Service default/web:http at 192.0.2.1:30080/TCP from a pod\n"}},
		{name: "by a node port that nobody has", in: []model.Event{service(external), endpoints("here")}, to: "30081", verdict: "untouched", cause: "not-a-service",
			want: []string{"Packet to 192.0.2.1:30081/TCP from a pod\n"}},
		{name: "by a node port of another protocol alone", in: []model.Event{service(external), endpoints("here")}, to: ":30080/udp", verdict: "untouched", cause: "not-a-service",
			want: []string{"UNTOUCHED: the node port is Service default/web's, for TCP\n\n    what to do   ask for that protocol"}},
		{name: "a slice without the label", in: []model.Event{service(), unlabelled}, to: "default/web", verdict: "refused", cause: "no-endpoints",
			want: []string{"the Service has no EndpointSlice; without the label kubernetes.io/service-name, and so of no Service: default/stray",
				"give it the label kubernetes.io/service-name: web"}},
		{name: "one endpoint elsewhere", in: []model.Event{service(externalLocal), endpoints("far")}, to: "default/web", from: "outside", verdict: "refused", cause: "no-local-endpoints",
			want: []string{"; there is one on another node\n"}},
		{name: "a pod that is the endpoint", in: []model.Event{service(), endpoints("here")}, to: "default/web", from: "10.1.0.1", verdict: "works", cause: "frontend", flows: true,
			want: []string{"but for the client itself, which sees this node's"}},
		{name: "the best frontend for those outside", in: []model.Event{service(external), endpoints("here")}, to: "default/web", from: "outside",
			verdict: "works", cause: "frontend", flows: true, want: []string{"at 198.51.100.1:80/TCP", "NodePort 30080/TCP (IPv4)", "ClusterIP 10.96.0.1:80/TCP"}},
		{name: "outside, with a ClusterIP only", in: []model.Event{service(), endpoints("here")}, to: "default/web", from: "outside",
			verdict: "works", cause: "frontend", flows: true, want: []string{"no address for clients outside the cluster", "type NodePort or LoadBalancer"}},
		{name: "a range that admits all pods", in: []model.Event{service(filtered("10.0.0.0/8")), endpoints("here")}, to: "198.51.100.1:80",
			verdict: "works", cause: "frontend", flows: true, want: []string{"may connect: the client is in 10.0.0.0/8"}},
		{name: "a range that admits some pods", in: []model.Event{service(filtered("10.1.2.0/24")), endpoints("here")}, to: "198.51.100.1:80",
			verdict: "works", cause: "frontend", flows: true, want: []string{"ask with --from and an IP"}},
		{name: "a range that admits no pods", in: []model.Event{service(filtered("203.0.113.0/24")), endpoints("here")}, to: "198.51.100.1:80",
			verdict: "refused", cause: "source-ranges", want: []string{"only these may connect: 203.0.113.0/24", "add a range with the client"}},
		{name: "no valid range", in: []model.Event{service(filtered()), endpoints("here")}, to: "198.51.100.1:80", from: "outside",
			verdict: "refused", cause: "source-ranges", want: []string{"nobody: no range of loadBalancerSourceRanges is valid"}},
		{name: "external policy Local keeps the address", in: []model.Event{service(externalLocal), endpoints("here", "far")}, to: "default/web", from: "203.0.113.1",
			verdict: "works", cause: "frontend", flows: true, want: []string{"1 of 2 endpoints", "on far: not on this node", "externalTrafficPolicy is Local"}},
		{name: "a node port elsewhere", in: []model.Event{service(external), endpoints("here")}, to: "192.0.2.2:30080", from: "outside",
			verdict: "untouched", cause: "not-a-service", want: []string{"UNTOUCHED: the node port is Service default/web's, but node ports answer on these addresses only: 192.0.2.1\n", "--nodeport-addresses"}},
		{name: "a node port of another family", in: []model.Event{service(external), endpoints("here"), twoFamilies}, to: "[2001:db8::1]:30080", from: "outside",
			verdict: "untouched", cause: "not-a-service", want: []string{"node port 30080/TCP is Service default/web's, which is of IPv4 only", "PreferDualStack"}},
		{name: "a node port on loopback", in: []model.Event{service(external), endpoints("here")}, to: "127.0.0.1:30080",
			verdict: "untouched", cause: "not-a-service", want: []string{"not served on loopback addresses", "localhost"}},
		{name: "a node port of another protocol", in: []model.Event{service(external), endpoints("here")}, to: "192.0.2.1:30080/udp",
			verdict: "untouched", cause: "not-a-service", want: []string{"the node port is Service default/web's, for TCP"}},
		{name: "slices that are empty", in: []model.Event{service(), endpoints()}, to: "default/web", verdict: "refused", cause: "no-endpoints",
			want: []string{"the EndpointSlices of the Service are empty"}},
		{name: "slices without a Service", in: []model.Event{endpoints("here")}, to: "default/web", verdict: "no-such-service", cause: "no-such-service",
			want: []string{"EndpointSlices of Service default/web are known, the Service is not"}},
		{name: "no port of that family", in: []model.Event{service(), endpoints("here")}, to: "default/web", from: "2001:db8::1", verdict: "refused", cause: "no-such-port",
			want: []string{"nothing here that such a client could connect to"}},
		{name: "what was left out of the object", in: []model.Event{
			service(func(s *model.Service) {
				s.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "default", Name: "web"}, Field: "spec.x", Reason: "is odd", Remedy: "make it even"}}
			}), endpoints("here")}, to: "default/web", verdict: "works", cause: "frontend", flows: true,
			want: []string{"Service default/web: spec.x: is odd", "make it even"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, text := run(t, behaviour{}, tt.in...).ask(t, tt.to, tt.from)
			if a.Verdict != tt.verdict || a.Cause != tt.cause || a.Flows != tt.flows {
				t.Errorf("%s by %s, flows %t", a.Verdict, a.Cause, a.Flows)
			}
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
		})
	}
}

// unlabelled is a slice that says of no Service that it is its.
var unlabelled = model.SetSlice{Slice: &model.Slice{Name: model.Name{Namespace: "default", Name: "stray"}, Family: model.IPv4}}

// Who names no client is told of kinds of clients for whom it does not work, and the exit code is as
// for services --failing.
func TestOtherKindsOfClients(t *testing.T) {
	local := func(s *model.Service) { external(s); s.ExternalPolicy = model.PolicyLocal }
	older := enginetest.Service("default/older", "10.96.0.9", func(s *model.Service) { s.ExternalIPs = addrs("198.51.100.9") })
	loser := service(func(s *model.Service) { s.ExternalIPs = addrs("198.51.100.9") })
	tests := []struct {
		name     string
		to, from string
		service  model.SetService
		at       string // the node of the endpoint
		flows    bool
		headline string
		kinds    []string
	}{
		{"all", "default/web", "", service(external), "there", true, "", nil},
		{"policy Local", "default/web", "", service(local), "there", true, "WORKS FOR SOME: not for clients outside: no endpoint on this node", []string{"outside"}},
		{"a port of it", "default/web:http", "", service(local), "there", true, "WORKS FOR SOME: not for clients outside: no endpoint on this node", []string{"outside"}},
		{"its node port", "30080", "", service(local), "there", true, "WORKS FOR SOME: not for clients outside: no endpoint on this node", []string{"outside"}},
		{"its address", "10.96.0.1:80", "", service(local), "there", true, "", nil},
		{"one kind", "default/web", "pod", service(local), "there", true, "", nil},
		{"an address is taken", "default/web", "", loser, "here", false, "WORKS FOR SOME: Service default/older has 198.51.100.9:80/TCP", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events := []model.Event{older, tt.service, endpoints(tt.at)}
			r, err := run(t, behaviour{}, events...).Explain(t.Context(), Question{To: tt.to, From: tt.from})
			if err != nil {
				t.Fatal(err)
			}
			headline, kinds := r.Others()
			if r.Flows != tt.flows || headline != tt.headline || !slices.Equal(kinds, tt.kinds) {
				t.Errorf("%q, %q, flows: %t; want %q, %q, %t", headline, kinds, r.Flows, tt.headline, tt.kinds, tt.flows)
			}
			var text strings.Builder
			if err := Write(&text, r); err != nil || !strings.Contains(text.String(), headline) {
				t.Errorf("%v:\n%s", err, &text)
			}
		})
	}
}

// A name that several namespaces have is no question yet.
func TestNameOfSeveralServices(t *testing.T) {
	p := run(t, behaviour{}, service(), enginetest.Service("shop/web", "10.96.0.2"), enginetest.Service("shop/cart", "10.96.0.3"))
	_, err := p.Explain(t.Context(), Question{To: "web"})
	if !errors.Is(err, ErrQuestion) || !strings.Contains(err.Error(), "2 Services have that name: ask for one of default/web, shop/web") {
		t.Errorf("the error is %v", err)
	}
	if a, _ := p.ask(t, "cart", ""); a.Service.Namespace != "shop" {
		t.Errorf("the answer is about %+v", a.Service)
	}
}

// A problem of all ports and families is written once, with all that it concerns, and before
// anything else.
func TestProblemOfManyPortsIsWrittenOnce(t *testing.T) {
	p := run(t, behaviour{}, twoFamilies, service(func(s *model.Service) {
		s.ClusterIPs = addrs("10.96.0.1", "fd00::1")
		for i := range 5 {
			s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprint("p", i), Protocol: model.TCP, Port: uint16(1000 + i)})
		}
	}))
	r, err := p.Explain(t.Context(), Question{To: "default/web", From: "node"})
	if err != nil || len(r.Answers) != 12 {
		t.Fatalf("%d answers, %v", len(r.Answers), err)
	}
	var b strings.Builder
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if lines := strings.Count(text, "\n"); lines > 24 || strings.Count(text, "problem ") != 1 {
		t.Errorf("%d lines:\n%s", lines, text)
	}
	for _, want := range []string{"Service default/web from this node\nREFUSED (rejected): ", "10.96.0.1:80/TCP (http)\n", "[fd00::1]:80/TCP (http)\n", "[fd00::1]:1004/TCP (p4)\n",
		"ask for one port, as default/web:http\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Index(text, "problem ") > strings.Index(text, "concerns ") {
		t.Errorf("the problem is not first:\n%s", text)
	}
	_, one := p.ask(t, "default/web:p0", "10.1.0.7")
	if at := strings.Index(one, "what to do"); at < 0 || at > strings.Index(one, "client ") {
		t.Errorf("what to do is not before the details:\n%s", one)
	}
}

func TestIgnoredHintsAreExplained(t *testing.T) {
	hinted := func(zones ...string) model.SetSlice {
		s := endpoints("here", "far")
		for i, zone := range zones {
			if zone != "" {
				s.Endpoints[i].Hints = &model.Hints{Zones: []string{zone}}
			}
		}
		return s
	}
	tests := []struct {
		name string
		in   model.SetSlice
		want string
	}{
		{"one has none", hinted("a", ""), "hints do not count: 1 ready endpoint of 2 has none"},
		{"none names the zone", hinted("b", "c"), "hints do not count: none names this node or its zone (a)"},
		{"they count", hinted("a", "b"), "hinted to zone b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, text := run(t, behaviour{}, service(), tt.in).ask(t, "default/web", ""); !strings.Contains(text, tt.want) {
				t.Errorf("%q is not in\n%s", tt.want, text)
			}
		})
	}
}

func TestServedOnlyIfProgrammed(t *testing.T) {
	described := func(d dataplane.Description, err error) func(dataplane.Destination, netip.Addr) (dataplane.Description, error) {
		return func(dataplane.Destination, netip.Addr) (dataplane.Description, error) { return d, err }
	}
	one := []netip.AddrPort{netip.MustParseAddrPort("10.1.0.1:8080")}
	other := []netip.AddrPort{netip.MustParseAddrPort("10.1.0.9:8080")}
	tests := []struct {
		name  string
		in    behaviour
		flows bool
		want  []string
	}{
		{"programmed", behaviour{Describe: described(dataplane.Description{Present: true, Route: one, RouteSize: 1, Counted: true, Connections: 3}, nil)}, true,
			[]string{"programmed", "it has counted 3 connections"}},
		{"a mode that shows nothing", behaviour{}, true, []string{"test mode does not show"}},
		{"refused", behaviour{Refuse: map[netip.Addr]error{webIP: errRefused}}, false,
			[]string{"DOES NOT ANSWER: would reach an endpoint, but the kernel is not programmed so", "the kernel refused this frontend: file exists", "refused by the kernel, tried 1 time in "}},
		{"nothing can be programmed", behaviour{Err: errors.New("no buffer space")}, false,
			[]string{"UNKNOWN YET: would reach an endpoint, but the kernel is not programmed so", "the kernel cannot be programmed at the moment: no buffer space"}},
		{"nothing can be programmed, but an older version serves",
			behaviour{Err: errors.New("no buffer space"), Describe: described(dataplane.Description{Present: true, Route: one, RouteSize: 1}, nil)}, true,
			[]string{"WORKS", "not yet in the kernel"}},
		{"removed by another program", behaviour{Describe: described(dataplane.Description{}, nil)}, false,
			[]string{"UNKNOWN YET: would reach an endpoint, but the kernel is not programmed so", "holds nothing for this frontend", "holds something else than was programmed"}},
		{"changed by another program", behaviour{Describe: described(dataplane.Description{Present: true, Route: other, RouteSize: 1}, nil)}, true,
			[]string{"holds something else than was programmed", "repaired by itself"}},
		{"it cannot be read", behaviour{Describe: described(dataplane.Description{}, errors.New("no permission"))}, true,
			[]string{"cannot be read: no permission"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, text := run(t, tt.in, service(), endpoints("here")).ask(t, "default/web", "")
			if a.Fate != "served" || a.Flows != tt.flows {
				t.Errorf("%s, flows %t", a.Verdict, a.Flows)
			}
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
		})
	}
}

// Session affinity may remember an endpoint that the client reached by another
// frontend of the Service.
func TestRememberedEndpointMustBeInThePool(t *testing.T) {
	tests := []struct {
		name, in, want string
	}{
		{"of the pool", "10.1.0.1:8080", "10.1.0.1:8080, which the kernel remembers for this client"},
		{"of another pool", "10.1.0.9:8080", "the only one, 10.1.0.1:8080"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := behaviour{Describe: func(dataplane.Destination, netip.Addr) (dataplane.Description, error) {
				one := []netip.AddrPort{netip.MustParseAddrPort("10.1.0.1:8080")}
				return dataplane.Description{Present: true, Route: one, RouteSize: 1,
					Remembered: []dataplane.Remembered{{Endpoint: netip.MustParseAddrPort(tt.in), Expires: time.Minute}}}, nil
			}}
			_, text := run(t, k, service(func(s *model.Service) { s.Affinity = 60 }), endpoints("here")).ask(t, "default/web", "10.1.0.7")
			if !strings.Contains(text, tt.want) {
				t.Errorf("%q is not in\n%s", tt.want, text)
			}
		})
	}
}

// A client that session affinity keeps at an endpoint meets what that one does.
func TestKeptClientIsJudgedByItsEndpoint(t *testing.T) {
	for _, tt := range []struct{ name, kept, verdict, want string }{
		{"at one that is silent", "10.1.0.1:8080", "no-answer", "DOES NOT ANSWER: session affinity keeps this client at 10.1.0.1:8080, which does not answer"},
		{"at one that answers", "10.1.0.2:8080", "works", "WORKS: reaches 10.1.0.2:8080 of 2 endpoints, where session affinity keeps this client"},
		{"nowhere", "10.1.0.9:8080", "works-for-some", "WORKS FOR SOME: 1 of 2 endpoints does not answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := behaviour{Describe: func(dataplane.Destination, netip.Addr) (dataplane.Description, error) {
				return dataplane.Description{Present: true, RouteSize: 2, Remembered: []dataplane.Remembered{{Endpoint: netip.MustParseAddrPort(tt.kept), Expires: time.Minute}}}, nil
			}}
			p := run(t, k, service(func(s *model.Service) { s.Affinity = 60 }), endpoints("here", "far"))
			judge := p.Judge
			p.Judge = func(v engine.View) *verdict.Judge {
				j := judge(v)
				j.Answers = func(to evidence.To) evidence.Report {
					if to.Addr() != netip.MustParseAddr("10.1.0.1") {
						return evidence.Report{}
					}
					return evidence.Report{State: evidence.Silent, Failed: 3, Since: time.Unix(1, 0)}
				}
				return j
			}
			if a, text := p.ask(t, "default/web", "10.1.0.7"); string(a.Verdict) != tt.verdict || !strings.Contains(text, tt.want) {
				t.Errorf("it is %s, want %s with %q:\n%s", a.Verdict, tt.verdict, tt.want, text)
			}
		})
	}
}

// twoFamilies gives the machine an IPv6 address too.
var twoFamilies = model.SetHostIPs{IPs: addrs("127.0.0.1", "192.0.2.1", "192.0.2.2", "2001:db8::1")}

// Endpoints that no source range admits clients to need not be in the kernel.
func TestEmptySourceRangesAreNoDifference(t *testing.T) {
	k := behaviour{Describe: func(dataplane.Destination, netip.Addr) (dataplane.Description, error) {
		return dataplane.Description{Present: true}, nil
	}}
	ranges := func(s *model.Service) {
		s.Filtered, s.SourceRanges = true, nil
	}
	a, text := run(t, k, service(external, ranges), endpoints("here")).ask(t, "198.51.100.1:80", "203.0.113.1")
	if a.Cause != "source-ranges" || strings.Contains(text, "holds something else") {
		t.Errorf("%s\n%s", a.Cause, text)
	}
}

func TestNotInSyncNamesTheSources(t *testing.T) {
	p := start(t, behaviour{})
	p.engine.AddSource("kubernetes")
	a, text := p.ask(t, "default/web", "")
	if a.Cause != "not-in-sync" || a.Flows || !strings.Contains(text, "the proxy still waits for kubernetes") {
		t.Errorf("%s\n%s", a.Cause, text)
	}
}

func TestAnswerForEachPort(t *testing.T) {
	p := run(t, behaviour{}, service(func(s *model.Service) {
		s.Ports = append(s.Ports, model.ServicePort{Name: "dns", Protocol: model.UDP, Port: 53}, model.ServicePort{Name: "dns-tcp", Protocol: model.TCP, Port: 53})
	}), endpoints("here"))
	for to, want := range map[string]string{
		"default/web": "http dns dns-tcp", "default/web:53": "dns dns-tcp", "default/web:53/udp": "dns", "default/web:http": "http",
	} {
		r, err := p.Explain(t.Context(), Question{To: to})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range r.Answers {
			got = append(got, a.Service.Port)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is about %q, want %q", to, got, want)
		}
		if allServed := want == "http"; r.Flows != allServed { // no slice has a port dns
			t.Errorf("%s flows: %t", to, r.Flows)
		}
	}
}

func TestHostileNamesStayText(t *testing.T) {
	hostile := "\x1b]0;owned\a<script>\u202e\r\n" + strings.Repeat("x", 253)
	s := endpoints("here", hostile)
	s.Ports[0].Name = hostile
	s.Name.Name = hostile
	p := run(t, behaviour{Refuse: map[netip.Addr]error{webIP: errors.New(hostile)}},
		service(func(svc *model.Service) {
			svc.Ports[0].Name = hostile
			svc.Problems = []model.Problem{{Object: model.Object{Kind: hostile}, Field: hostile, Reason: hostile, Remedy: hostile}}
		}), s)
	a, text := p.ask(t, "default/web", "")
	for line := range strings.Lines(text) {
		for _, r := range strings.TrimSuffix(line, "\n") {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q is in the text", r)
			}
		}
	}
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var back Answer
	if err := json.Unmarshal(b, &back); err != nil || back.Service.Port != hostile {
		t.Errorf("JSON gives %q back, %v", back.Service.Port, err)
	}
}

func TestAnswerIsBounded(t *testing.T) {
	s := endpoints()
	for i := range 5000 {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Conditions: model.Ready})
	}
	a, text := run(t, behaviour{}, service(), s).ask(t, "default/web", "")
	if len(a.Endpoints) != maxEndpoints || a.Omitted != 5000-maxEndpoints {
		t.Errorf("%d endpoints and %d omitted", len(a.Endpoints), a.Omitted)
	}
	if n := strings.Count(text, "\n"); n > 60 || !strings.Contains(text, "and 4980 more") {
		t.Errorf("%d lines:\n%.2000s", n, text)
	}
}

func TestAnswersOfManyPortsAreBounded(t *testing.T) {
	p := run(t, behaviour{}, service(func(s *model.Service) {
		for i := range 1000 {
			s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprint("p", i), Protocol: model.TCP, Port: uint16(1000 + i)})
		}
	}), endpoints("here"))
	r, err := p.Explain(t.Context(), Question{To: "default/web"})
	if err != nil || len(r.Answers) != maxAnswers || r.Omitted != 1001-maxAnswers {
		t.Errorf("%d answers and %d ports omitted, %v", len(r.Answers), r.Omitted, err)
	}
	if a, _ := p.ask(t, "default/web:p999", ""); a.Service.Port != "p999" {
		t.Errorf("the answer is for %+v", a.Service)
	}
}

func TestBadQuestions(t *testing.T) {
	tests := []struct{ name, to, from, want string }{
		{"a node port of a node without addresses", "30080", "", "no Service has node port 30080"},
		{"nothing", "", "", "name one thing to explain, such as default/web"},
		{"three parts", "a/b/c", "", "is not a Service, an address, a DNS name or a URL"},
		{"a sentence", "why is the sky blue", "", "is not a Service, an address, a DNS name or a URL"},
		{"a URL of nothing", "http://", "", "is not a Service, an address, a DNS name or a URL"},
		{"a colon and no port", "default/web:", "", "has a colon and no port: ask for default/web or default/web:80"},
		{"a name of another domain", "www.example.com", "", "is not the DNS name of a Service"},
		{"port 0", "10.96.0.1:0", "", "has port 0"},
		{"unknown protocol", "10.96.0.1:80/icmp", "", "use TCP, UDP or SCTP"},
		{"unknown sender", "default/web", "me", "neither an IP nor one of pod, node, outside"},
		{"families", "10.96.0.1:80", "2001:db8::1", "different families"},
	}
	p := start(t, behaviour{})
	p.engine.Attempt()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := p.Explain(t.Context(), Question{To: tt.to, From: tt.from})
			if !errors.Is(err, ErrQuestion) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
}

func TestFormsOfQuestions(t *testing.T) {
	two := service(func(s *model.Service) {
		s.Ports = append(slices.Clone(s.Ports), model.ServicePort{Name: "https", Protocol: model.TCP, Port: 443})
	})
	p := run(t, behaviour{}, two, endpoints("here"), enginetest.Service("svc/odd", "10.96.0.7"))
	for _, test := range []struct {
		to   string
		want string // titles of the answers
	}{
		{"default/web:80", "Service default/web:http at 10.96.0.1:80/TCP from a pod"},
		{"default/web:https", "Service default/web:https at 10.96.0.1:443/TCP from a pod"},
		{"svc/web:80", "Service default/web:http at 10.96.0.1:80/TCP from a pod"},
		{"service/web:80/tcp", "Service default/web:http at 10.96.0.1:80/TCP from a pod"},
		{"svc/odd", "Service svc/odd:http at 10.96.0.7:80/TCP from a pod"}, // there is such a namespace
		{"web.default:80", "Service default/web:http at 10.96.0.1:80/TCP from a pod"},
		{"web.default.svc:443", "Service default/web:https at 10.96.0.1:443/TCP from a pod"},
		{"Web.Default.svc.cluster.local.:80", "Service default/web:http at 10.96.0.1:80/TCP from a pod"},
		{"web.default.svc", "Service default/web:http at 10.96.0.1:80/TCP from a pod; Service default/web:https at 10.96.0.1:443/TCP from a pod"},
		{"http://web.default.svc.cluster.local/a/b?c=d:e", "Service default/web:http at 10.96.0.1:80/TCP from a pod"},
		{"https://user:secret@web.default/", "Service default/web:https at 10.96.0.1:443/TCP from a pod"},
		{"http://10.96.0.1:443", "Service default/web:https at 10.96.0.1:443/TCP from a pod"},
		{"http://10.96.0.1", "Service default/web:http at 10.96.0.1:80/TCP from a pod"},
		{"udp://10.96.0.1:80", "Service default/web at 10.96.0.1:80/UDP from a pod"},
		{"https://[2001:db8::7]/", "Packet to [2001:db8::7]:443/TCP from a pod, which counts as outside"},
		{"10.96.0.1", "Service default/web:http at 10.96.0.1:80/TCP from a pod; Service default/web:https at 10.96.0.1:443/TCP from a pod"},
		{"10.96.9.9", "Packet to 10.96.9.9:80/TCP from a pod"},
	} {
		r, err := p.Explain(t.Context(), Question{To: test.to})
		if err != nil {
			t.Errorf("%s: %v", test.to, err)
			continue
		}
		var titles []string
		for i := range r.Answers {
			titles = append(titles, r.Answers[i].title())
		}
		if got := strings.Join(titles, "; "); got != test.want {
			t.Errorf("%s: %s, want %s", test.to, got, test.want)
		}
	}
	_, text := run(t, behaviour{}, service(external), endpoints("here")).ask(t, "192.0.2.1", "outside")
	if want := "Service default/web:http at 192.0.2.1:30080/TCP from outside"; !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
}

func TestHeadlines(t *testing.T) {
	sticky := service(func(s *model.Service) { s.Affinity = 60 })
	remembers := behaviour{Describe: func(dataplane.Destination, netip.Addr) (dataplane.Description, error) {
		return dataplane.Description{Present: true, RouteSize: 2, Remembered: []dataplane.Remembered{{Endpoint: netip.MustParseAddrPort("10.1.0.2:8080"), Expires: time.Minute}}}, nil
	}}
	older := enginetest.Service("default/aaa", "10.96.0.1", func(s *model.Service) { s.Created = time.Unix(1, 0) })
	newer := service(func(s *model.Service) { s.Created = time.Unix(2, 0) })
	tests := []struct {
		name string
		b    behaviour
		in   []model.Event
		to   string
		want []string
	}{
		{"affinity", behaviour{}, []model.Event{sticky, endpoints("here", "far")}, "default/web", []string{"WORKS: reaches one of 2 endpoints, and then the same one again (session affinity)"}},
		{"a remembered client", remembers, []model.Event{sticky, endpoints("here", "far")}, "default/web", []string{"WORKS: reaches 10.1.0.2:8080 of 2 endpoints, where session affinity keeps this client"}},
		{"a conflict", behaviour{}, []model.Event{older, newer, endpoints("here")}, "default/web", []string{"Service default/web from a pod\nREFUSED (not used): another Service has its address and port: 10.96.0.1:80/TCP belongs to default/aaa"}},
		{"a conflict at a port", behaviour{}, []model.Event{older, newer, endpoints("here")}, "default/web:80", []string{"10.96.0.1:80/TCP belongs to default/aaa"}},
		{"a typo", behaviour{}, []model.Event{service(), endpoints("here")}, "default/wbe", []string{"Service default/wbe from a pod\n", "did you mean default/web?", "ask for default/web"}},
		{"a typo in the namespace", behaviour{}, []model.Event{service(), endpoints("here")}, "defualt/web", []string{"there is a Service of that name in namespace default"}},
		{"a pod of the other family", behaviour{}, []model.Event{service(), endpoints("here")}, "[2001:db8::9]:80",
			[]string{"from a pod, which counts as outside", "pods are recognised in the other family only (set clusterCIDR to a range of IPv6, too)"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, text := run(t, test.b, test.in...).ask(t, test.to, "")
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
		})
	}
	if _, text := run(t, behaviour{}, service(external), endpoints("here")).ask(t, "default/web", "outside"); strings.Contains(text, "unless it is the client itself") {
		t.Errorf("a client outside cannot be the endpoint:\n%s", text)
	}
}

func TestRemediesNameTheManifests(t *testing.T) {
	p := run(t, behaviour{}, service())
	p.Manifests = "/etc/cluster"
	for _, to := range []string{"default/web", "default/gone", "10.96.9.9:80"} {
		_, text := p.ask(t, to, "")
		if strings.Contains(text, "kubectl") || !strings.Contains(text, "/etc/cluster") && !strings.Contains(text, "kube-proxy services") {
			t.Errorf("%s:\n%s", to, text)
		}
	}
}

func TestUnknownInterface(t *testing.T) {
	p := run(t, behaviour{}, service(), endpoints("here"))
	p.IsInterface = func(name string) bool { return name == "eth0" }
	if _, err := p.Explain(t.Context(), Question{To: "default/web", Interface: "nosuch"}); !errors.Is(err, ErrQuestion) || !strings.Contains(err.Error(), `no interface "nosuch"`) {
		t.Errorf("the error is %v", err)
	}
	if _, err := p.Explain(t.Context(), Question{To: "default/web", Interface: "eth0"}); err != nil {
		t.Error(err)
	}
}

func FuzzQuestion(f *testing.F) {
	for _, seed := range []string{"default/web:80/tcp", "[::1]:80/udp", "10.0.0.1:80", "a/b", "/:", "::/0", "[", "a/b:c/d", "http://web.default.svc:80/x", "svc/web", "10.0.0.1", "https://[::1]/", "web", "web:80", "30080", ":30080/udp"} {
		f.Add(seed, "pod")
	}
	e := New(Options{})
	f.Fuzz(func(t *testing.T, to, from string) {
		r, err := e.parse(Question{To: to, From: from})
		if err != nil {
			if !errors.Is(err, ErrQuestion) {
				t.Errorf("%v", err)
			}
			return
		}
		_, number := r.target.number()
		named, at := r.target.service != (model.Name{}), r.target.key.Addr().IsValid()
		if named == at && (named || !number) {
			t.Errorf("%q is %+v", to, r.target)
		}
	})
}

// What is in the way on this node is the answer, with its remedy.
func TestFirewall(t *testing.T) {
	p := run(t, behaviour{}, service(), endpoints("here", "far"))
	judge := p.Judge
	p.Judge = func(v engine.View) *verdict.Judge {
		j := judge(v)
		j.IsNode = func(netip.Addr) bool { return false }
		j.Blocked = func(path nodeproblem.Path) *nodeproblem.Obstacle {
			if path.From != plan.PodClient {
				return nil
			}
			return &nodeproblem.Obstacle{Kind: nodeproblem.Firewall, Why: "dropped by table inet fw, chain forward", Remedy: "run nft insert rule"}
		}
		return j
	}
	a, text := p.ask(t, "default/web", "pod")
	if a.Verdict != verdict.NoAnswer || a.Cause != "firewall" || a.Flows {
		t.Errorf("%+v", a)
	}
	for _, want := range []string{"DOES NOT ANSWER: dropped by table inet fw, chain forward\n", "problem", "what to do   run nft insert rule"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if a, _ := p.ask(t, "default/web", "node"); a.Verdict != verdict.Works {
		t.Errorf("%+v", a)
	}
}

// A pod that is not recognised counts as a client outside, and is told nothing twice.
func TestOtherKindsOfClientsThanAPod(t *testing.T) {
	r := &Reply{
		Answers: []Answer{{Verdict: verdict.Refused, Packet: PacketAnswer{From: "outside", Asked: "pod"}}},
		Service: &verdict.Service{Word: verdict.Refused, Why: "none here", Clients: []verdict.Client{
			{From: "pod", Word: verdict.Refused, Why: "none here"}, {From: "node", Word: verdict.Refused, Why: "none here"}}},
	}
	if headline, kinds := r.Others(); headline != "" || len(kinds) > 0 {
		t.Errorf("it adds %q of %q", headline, kinds)
	}
}
