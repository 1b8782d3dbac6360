package verdict_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// met is what clients of a kind met at an endpoint.
type met map[string]evidence.Report

func (m met) answers(to evidence.To) evidence.Report {
	return m[to.From.String()+" "+to.Addr().String()]
}

var (
	noon   = time.Date(2026, 11, 18, 12, 3, 0, 0, time.UTC)
	silent = evidence.Report{State: evidence.Silent, Failed: 67, Since: noon}
	resets = evidence.Report{State: evidence.Resets, Failed: 2, Refused: 2, Since: noon}
	flaky  = evidence.Report{State: evidence.Flaky, Failed: 1, Since: noon, LastAnswer: noon}
	fine   = evidence.Report{LastAnswer: noon}
)

func nodePort(s *model.Service)    { s.Ports[0].NodePort = 30080 }
func localOnly(s *model.Service)   { s.ExternalPolicy = model.PolicyLocal }
func passThrough(s *model.Service) { s.PassThrough = true }
func sctpToo(s *model.Service) {
	s.Ports = append(s.Ports, model.ServicePort{Name: "sctp", Protocol: model.SCTP, Port: 132})
}
func ranges(s *model.Service) { s.Ports[0].Ranges = []model.PortRange{{First: 10000, Last: 20000}} }

func TestVerdicts(t *testing.T) {
	const here, there = "10.244.1.1", "10.244.2.1"
	tests := []struct {
		name      string
		edits     []func(*model.Service)
		endpoints []string
		met       met
		blocked   func(nodeproblem.Path) *nodeproblem.Obstacle
		relayed   bool
		limits    plan.Limits
		nodePorts bool // no others
		want      verdict.Word
		cause     verdict.Cause
		why       string
		clients   string // words, in the order pod, node, outside
	}{
		{name: "nothing is known against it", endpoints: []string{here + "@node1"}, want: verdict.Works, clients: "works works"},
		{name: "no slice", want: verdict.Refused, cause: "no-endpoints", why: "no EndpointSlice", clients: "refused refused"},
		{name: "policy Local", edits: []func(*model.Service){nodePort, localOnly}, endpoints: []string{there + "@node2"},
			want: verdict.WorksForSome, cause: "no-local-endpoints", why: "not for clients outside: no endpoint on this node", clients: "works works refused"},
		{name: "others serve clients outside", edits: []func(*model.Service){nodePort, localOnly, passThrough}, endpoints: []string{there + "@node2"},
			want: verdict.Works, clients: "works works untouched"},
		{name: "others serve clients outside, nobody those inside", edits: []func(*model.Service){nodePort, passThrough},
			want: verdict.Refused, cause: "no-endpoints", why: "no EndpointSlice", clients: "refused refused untouched"},
		{name: "left alone, and nothing else", edits: []func(*model.Service){nodePort, passThrough}, nodePorts: true,
			want: verdict.Refused, cause: "no-endpoints", why: "no EndpointSlice, and packets are left alone", clients: "untouched untouched untouched"},
		{name: "a port of a protocol that is not served", edits: []func(*model.Service){sctpToo}, endpoints: []string{here + "@node1"}, limits: plan.Limits{NoSCTP: true},
			want: verdict.WorksForSome, cause: verdict.PortsNotServed, why: "not at port 132/SCTP", clients: "works works"},
		{name: "port ranges that are not served", edits: []func(*model.Service){ranges}, endpoints: []string{here + "@node1"},
			want: verdict.WorksForSome, cause: verdict.PortsNotServed, why: "not at ports 10000-20000/TCP", clients: "works works"},
		{name: "silent", endpoints: []string{here + "@node1"}, met: met{"pod " + here: silent},
			want: verdict.NoAnswer, cause: verdict.EndpointSilent, why: "the endpoint does not answer, 67 failed attempts since 12:03:00 UTC", clients: "no-answer no-answer"},
		{name: "silent to pods alone", endpoints: []string{here + "@node1"}, met: met{"pod " + here: silent, "node " + here: fine},
			want: verdict.WorksForSome, cause: verdict.EndpointSilent, why: "not for pods: the endpoint does not answer", clients: "no-answer works"},
		{name: "one of two is silent", endpoints: []string{here + "@node1", there + "@node2"}, met: met{"pod " + there: silent},
			want: verdict.WorksForSome, cause: verdict.EndpointSilent, why: "1 of 2 endpoints does not answer, 67 failed", clients: "works-for-some works-for-some"},
		{name: "nothing listens", endpoints: []string{here + "@node1"}, met: met{"node " + here: resets},
			want: verdict.NoAnswer, cause: verdict.EndpointResets, why: "the endpoint refuses connections, 2 failed attempts", clients: "no-answer no-answer"},
		{name: "now and then", endpoints: []string{here + "@node1"}, met: met{"pod " + here: flaky},
			want: verdict.WorksForSome, cause: verdict.EndpointSilent, why: "answers only some connections", clients: "works-for-some works"},
		{name: "relayed, one of two is silent", endpoints: []string{here + "@node1", there + "@node2"}, met: met{"pod " + there: silent}, relayed: true,
			want: verdict.Works, clients: "works works"},
		{name: "relayed, both are", endpoints: []string{here + "@node1", there + "@node2"}, met: met{"pod " + here: silent, "pod " + there: silent}, relayed: true,
			want: verdict.NoAnswer, cause: verdict.EndpointSilent, why: "all 2 endpoints do not answer", clients: "no-answer no-answer"},
		{name: "relayed, now and then", endpoints: []string{here + "@node1"}, met: met{"pod " + here: flaky}, relayed: true,
			want: verdict.WorksForSome, cause: verdict.EndpointSilent, why: "answers only some connections", clients: "works-for-some works"},
		{name: "forwarding is off", edits: []func(*model.Service){nodePort}, endpoints: []string{here + "@node1"}, blocked: notForwarding,
			want: verdict.WorksForSome, cause: verdict.ForwardingOff, why: "not for pods and clients outside: this node forwards no packets", clients: "no-answer works no-answer"},
		{name: "forwarding is off, the endpoint is the node", endpoints: []string{"192.0.2.1@node1"}, blocked: notForwarding, want: verdict.Works, clients: "works works"},
		{name: "a firewall before the node's own endpoint", endpoints: []string{here + "@node1", "192.0.2.1@node1"}, blocked: wall,
			want: verdict.WorksForSome, cause: verdict.Firewall, why: "not for pods: dropped by table inet fw", clients: "works-for-some works"},
		{name: "no route to one of two", endpoints: []string{here + "@node1", there + "@node2"}, blocked: noRouteTo(there),
			want: verdict.WorksForSome, cause: verdict.NoRoute, why: "no route, on the way to 1 of 2 endpoints", clients: "works-for-some works-for-some"},
		{name: "relayed, no route to one of two", endpoints: []string{here + "@node1", there + "@node2"}, blocked: noRouteTo(there), relayed: true,
			want: verdict.Works, clients: "works works"},
		{name: "relayed, no route", endpoints: []string{there + "@node2"}, blocked: noRouteTo(there), relayed: true,
			want: verdict.NoAnswer, cause: verdict.NoRoute, why: "no route", clients: "no-answer no-answer"},
		{name: "no room for some connections", endpoints: []string{here + "@node1"}, blocked: noRoom,
			want: verdict.WorksForSome, cause: verdict.ConntrackFull, why: "no room", clients: "works-for-some works-for-some"},
		{name: "a firewall before the only endpoint, which is the node's own", endpoints: []string{"192.0.2.1@node1"}, blocked: wall,
			want: verdict.WorksForSome, cause: verdict.Firewall, why: "not for pods: dropped by table inet fw", clients: "no-answer works"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := enginetest.New(t, plan.Config{NodeName: "node1", MasqueradeBit: 14, ProxyConnects: tt.relayed, Limits: tt.limits, NodePortsOnly: tt.nodePorts})
			e.Start()
			s := enginetest.Service("default/web", "10.96.0.1", tt.edits...)
			events := []model.Event{s, model.SetHostIPs{IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}
			if tt.endpoints != nil {
				events = append(events, enginetest.Slice(s.Service, tt.endpoints...))
			}
			e.Sync(events...)
			got := judged(e, tt.met, tt.blocked)[s.Service.Name]
			var words []string
			for _, c := range got.Clients {
				words = append(words, string(c.Word))
			}
			if local := tt.cause == "no-local-endpoints"; got.Faulty() != (tt.want != verdict.Works && !local) {
				t.Errorf("%+v is faulty: %t", got, got.Faulty())
			}
			if got.Word != tt.want || got.Cause != tt.cause || !strings.Contains(got.Why, tt.why) || strings.Join(words, " ") != tt.clients {
				t.Errorf("%+v\nwant %s by %s: %s for %s", got, tt.want, tt.cause, tt.why, tt.clients)
			}
		})
	}
}

// A range of ports is judged by all its ports together, and a packet by its own.
func TestVerdictsOnRanges(t *testing.T) {
	const endpoint = "10.244.1.1"
	e := enginetest.New(t, plan.Config{NodeName: "node1", MasqueradeBit: 14, PortRanges: true})
	e.Start()
	s := enginetest.Service("default/web", "10.96.0.1", func(s *model.Service) {
		s.Ports[0].Ranges = []model.PortRange{{First: 10000, Last: 20000}}
	})
	e.Sync(s, enginetest.Slice(s.Service, endpoint+"@node1"))
	for _, tt := range []struct {
		name        string
		at          uint16 // which is met
		blocked     bool
		met         evidence.Report
		want        verdict.Word // on the Service
		packet      verdict.Word // to port 10001
		why, inside string
	}{
		{name: "nothing is known against it", want: verdict.Works, packet: verdict.Works},
		{name: "silence at that port", at: 10001, met: silent, want: verdict.WorksForSome, packet: verdict.NoAnswer, why: "the endpoint answers only some connections", inside: "does not answer"},
		{name: "silence at another port", at: 15000, met: silent, want: verdict.WorksForSome, packet: verdict.Works, why: "the endpoint answers only some connections"},
		{name: "nothing listens on that port", at: 10001, met: resets, want: verdict.Works, packet: verdict.NoAnswer, inside: "refuses connections"},
		{name: "a firewall before that port", at: 10001, blocked: true, want: verdict.Works, packet: verdict.NoAnswer, inside: "a firewall"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			met := func(to evidence.To) evidence.Report {
				if to.Port() == tt.at {
					return tt.met
				}
				return evidence.Report{}
			}
			in := func(_ evidence.To, ports model.PortRange) evidence.Report {
				if !ports.Contains(tt.at) || tt.met.Failed == tt.met.Refused {
					return evidence.Report{}
				}
				out := tt.met
				out.State = evidence.Flaky
				return out
			}
			blocked := func(p nodeproblem.Path) *nodeproblem.Obstacle {
				if !tt.blocked || p.To.Port() != tt.at {
					return nil
				}
				return &nodeproblem.Obstacle{Kind: nodeproblem.Firewall, Why: "a firewall"}
			}
			e.Inspect(func(v engine.View) {
				j := verdict.Judge{View: v, Phase: e.Frontend, Answers: met, AnswersIn: in, Blocked: blocked, IsNode: func(netip.Addr) bool { return false }}
				if got := j.Service(s.Service.Name, v.Planner.Frontends(s.Service.Name)); got.Word != tt.want || !strings.Contains(got.Why, tt.why) {
					t.Errorf("the Service: %+v, want %s: %s", got, tt.want, tt.why)
				}
				d := v.Desired.Decide(plan.Packet{From: plan.PodClient, To: plan.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 10001, Protocol: model.TCP}})
				if got := j.Packet(&d); got.Word != tt.packet || !strings.Contains(got.Why, tt.inside) {
					t.Errorf("a packet to 10001: %+v, want %s: %s", got, tt.packet, tt.inside)
				}
			})
		})
	}
}

// notForwarding is a node with ip_forward=0.
func notForwarding(p nodeproblem.Path) *nodeproblem.Obstacle {
	if p.Own || p.From == plan.NodeClient {
		return nil
	}
	return &nodeproblem.Obstacle{Kind: nodeproblem.ForwardingOff, Why: "this node forwards no packets"}
}

// wall is a node that accepts no packets to itself.
func wall(p nodeproblem.Path) *nodeproblem.Obstacle {
	if !p.Own || p.From == plan.NodeClient {
		return nil
	}
	return &nodeproblem.Obstacle{Kind: nodeproblem.Firewall, Why: "dropped by table inet fw, chain input"}
}

// noRouteTo is a node that does not know the way to an address.
func noRouteTo(addr string) func(nodeproblem.Path) *nodeproblem.Obstacle {
	return func(p nodeproblem.Path) *nodeproblem.Obstacle {
		if p.To.Addr() != netip.MustParseAddr(addr) {
			return nil
		}
		return &nodeproblem.Obstacle{Kind: nodeproblem.NoRoute, Why: "no route"}
	}
}

// noRoom is a node with a full connection tracking table.
func noRoom(nodeproblem.Path) *nodeproblem.Obstacle {
	return &nodeproblem.Obstacle{Kind: nodeproblem.ConntrackFull, Why: "no room", Partial: true}
}

// judged returns the verdicts on all Services.
func judged(e *enginetest.Engine, m met, blocked func(nodeproblem.Path) *nodeproblem.Obstacle) map[model.Name]verdict.Service {
	return verdict.All(e, func(v engine.View) *verdict.Judge {
		return &verdict.Judge{View: v, Phase: e.Frontend, Answers: m.answers, Blocked: blocked,
			IsNode: func(ip netip.Addr) bool { return ip == netip.MustParseAddr("192.0.2.1") }}
	})
}

func TestVerdictsOnWhatIsNotInTheKernel(t *testing.T) {
	e := enginetest.New(t, plan.Config{NodeName: "node1", MasqueradeBit: 14})
	e.Dataplane.Set(func(b *enginetest.Behaviour) { b.Refuse[netip.MustParseAddr("10.96.0.2")] = errors.New("no room") })
	e.Start()
	first, failing, second := enginetest.Service("default/first", "10.96.0.1"), enginetest.Service("default/failing", "10.96.0.2"), enginetest.Service("default/second", "10.96.0.1")
	e.Sync(first, failing, second, enginetest.Slice(first.Service, "10.244.1.1@node1"), enginetest.Slice(failing.Service, "10.244.1.1@node1"),
		model.SetInvalid{Problems: []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "default", Name: "bad"}, Field: "spec.ports", Reason: "none", Remedy: "add one"}}})
	all := judged(e, nil, nil)
	for name, want := range map[string]verdict.Cause{
		"first": "", "failing": verdict.ProgrammingFailed, "second": verdict.AddressTaken, "bad": verdict.InvalidObject,
	} {
		got := all[model.Name{Namespace: "default", Name: name}]
		if got.Cause != want || (got.Word == verdict.Works) != (want == "") {
			t.Errorf("%s: %+v, want cause %q", name, got, want)
		}
	}
}

// interrupted is an engine in which something happens after the first look.
type interrupted struct {
	*enginetest.Engine
	looks int
	then  func()
}

func (i *interrupted) Inspect(read func(engine.View)) {
	i.Engine.Inspect(read)
	if i.looks++; i.looks == 1 {
		i.then()
	}
}

// Planning does not wait until all Services are judged, so that some may be deleted meanwhile.
func TestServicesAreJudgedInPortions(t *testing.T) {
	e := enginetest.New(t, plan.Config{NodeName: "node1", MasqueradeBit: 14})
	e.Start()
	var services []model.Event
	for i := range verdict.Portion + 1 {
		services = append(services, enginetest.Service(fmt.Sprintf("default/s%d", i), fmt.Sprintf("10.96.%d.%d", i/256, i%256)))
	}
	e.Sync(services...)
	gone := model.Name{Namespace: "default", Name: "s0"}
	i := &interrupted{Engine: e, then: func() { e.Change(model.DeleteService{Name: gone}) }}
	all := verdict.All(i, func(v engine.View) *verdict.Judge { return &verdict.Judge{View: v, Phase: e.Frontend} })
	if judged, there := all[gone]; there || len(all) != verdict.Portion {
		t.Errorf("%d are judged, and the one that is gone: %+v", len(all), judged)
	}
	if i.looks != 3 {
		t.Errorf("the planner was held up %d times, want once for the names and once for each portion", i.looks)
	}
}
