package evidence

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// What a Sensor reports is of the kind of client that failed, with its age; what it cannot see,
// it says, until it can.
func TestSensor(t *testing.T) {
	e := enginetest.New(t, plan.Config{NodeName: "node1", DetectLocal: plan.DetectClusterCIDR, MasqueradeBit: 14,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}})
	e.Start()
	e.Sync()
	clock := clocktesting.NewFakeClock(start)
	s := New(Options{Logger: logr.Discard(), Clock: clock, Engine: e, OnLook: func() {}})
	endpoint := netip.MustParseAddrPort("10.244.1.1:80")
	from := func(client string, id uint32) conntrack.Connection {
		return conntrack.Connection{ID: id, Protocol: model.TCP, Client: netip.MustParseAddrPort(client), Endpoint: endpoint}
	}
	var refuses error
	s.connections = func(_ context.Context, _ int, which conntrack.Selection, yield func(conntrack.Connection)) (time.Duration, error) {
		if which.Unreplied && refuses == nil && clock.Since(start) > 0 {
			yield(from("10.244.1.2:1000", 1))
		}
		return 20 * time.Millisecond, refuses
	}
	begun := make(chan struct{})
	fails := make(chan error)
	s.watch = func(ctx context.Context, _ int, begin func(), yield func(conntrack.Connection)) error {
		select {
		case err := <-fails:
			return err
		case <-begun:
		case <-ctx.Done():
			return ctx.Err()
		}
		begin()
		yield(from("198.51.100.1:2000", 2))
		<-ctx.Done()
		return ctx.Err()
	}

	if interval := s.look(t.Context()); interval != costFactor*20*time.Millisecond {
		t.Errorf("the next look is after %v", interval)
	}
	for range 2 {
		clock.Step(time.Second)
		s.look(t.Context())
	}
	pods := To{endpoint, model.TCP, plan.PodClient}
	if r := s.Report(pods); r.State != Silent || r.Failed != 1 {
		t.Errorf("pods met %+v", r)
	}
	refuses = errors.New("no table")
	clock.Step(time.Minute)
	s.look(t.Context())
	if sum := s.Summary(); !errors.Is(sum.Err, refuses) || !sum.At.Equal(start.Add(2*time.Second)) || s.Report(pods).State != Silent {
		t.Errorf("after a look that failed: %+v, %+v", sum, s.Report(pods))
	}

	go s.listen(t.Context())
	blind := errors.New("no notifications")
	fails <- blind
	testkit.Until(t, func() bool { return errors.Is(s.Summary().Blind, blind) && clock.HasWaiters() })
	clock.Step(time.Hour)
	close(begun)
	outside := To{endpoint, model.TCP, plan.OutsideClient}
	testkit.Until(t, func() bool { return s.Report(outside).State == Resets })
	if sum := s.Summary(); sum.Blind != nil {
		t.Errorf("it sees again, and says %v", sum.Blind)
	}

	// Attempts of the proxy itself, which count for the kind of the client that it made them for.
	go s.followTries(t.Context())
	relayed := netip.MustParseAddrPort("10.244.1.3:80")
	tried := func(client string, o dataplane.Outcome) {
		s.Tried(dataplane.Attempt{Client: netip.AddrPortFrom(netip.MustParseAddr(client), 40000), Endpoint: relayed, Protocol: model.TCP, Outcome: o})
	}
	tried("10.244.1.2", dataplane.Accepted) // which is no news
	tried("127.0.0.1", dataplane.Refused)
	node := To{relayed, model.TCP, plan.NodeClient}
	testkit.Until(t, func() bool { return s.Report(node).State == Resets })
	tried("198.51.100.1", dataplane.Accepted)
	outside.AddrPort = relayed
	testkit.Until(t, func() bool { return !s.Report(outside).LastAnswer.IsZero() })
	if r := s.Report(To{relayed, model.TCP, plan.PodClient}); r != (Report{}) {
		t.Errorf("pods met %+v", r)
	}
}

// Who is a pod is known when the first objects have arrived. What was taken for a client of another
// kind before is forgotten then.
func TestSensorLearnsKinds(t *testing.T) {
	e := enginetest.New(t, plan.Config{NodeName: "node1", DetectLocal: plan.DetectClusterCIDR, MasqueradeBit: 14,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}})
	e.Start()
	s := New(Options{Logger: logr.Discard(), Clock: clocktesting.NewFakeClock(start), Engine: e, OnLook: func() {}})
	endpoint := netip.MustParseAddrPort("10.244.1.1:80")
	try := func() {
		s.Tried(dataplane.Attempt{Client: netip.MustParseAddrPort("10.244.1.2:40000"), Endpoint: endpoint, Protocol: model.TCP, Outcome: dataplane.Refused})
		s.addTries()
	}
	outside, pods := To{endpoint, model.TCP, plan.OutsideClient}, To{endpoint, model.TCP, plan.PodClient}
	try()
	if s.Report(outside).State != Resets {
		t.Fatalf("before the first objects: %v", s.All())
	}
	e.Sync()
	try()
	if s.Report(outside).State != Fine || s.Report(pods).State != Resets {
		t.Errorf("after them: %v", s.All())
	}
}

// Of some ports together silence is reported, and not that nobody listens at one of them.
func TestReportOfPorts(t *testing.T) {
	e := enginetest.New(t, plan.Config{NodeName: "node1"})
	s := New(Options{Logger: logr.Discard(), Clock: clocktesting.NewFakeClock(start), Engine: e, OnLook: func() {}})
	to := func(port uint16, from plan.Client) To {
		return To{netip.AddrPortFrom(netip.MustParseAddr("10.244.1.1"), port), model.TCP, from}
	}
	s.publish(func() {
		for range 2 { // the second time replaces the first
			s.setReport(to(100, plan.PodClient), Report{State: Silent, Failed: 3, Since: start.Add(time.Second), LastFailure: start})
			s.setReport(to(101, plan.PodClient), Report{State: Flaky, Failed: 5, Refused: 1, Since: start, LastFailure: start})
			s.setReport(to(105, plan.PodClient), Report{State: Silent, Failed: 9, Since: start, LastFailure: start.Add(-2 * time.Minute)})
			s.setReport(to(102, plan.PodClient), Report{State: Resets, Failed: 7, Refused: 7, Since: start})
			s.setReport(to(103, plan.PodClient), Report{State: Fine, Failed: 7, Since: start})
			s.setReport(to(99, plan.PodClient), Report{State: Silent, Failed: 100, Since: start})
			s.setReport(to(104, plan.NodeClient), Report{State: Silent, Failed: 100, Since: start})
		}
	})
	ports := model.PortRange{First: 100, Last: 110}
	if r := s.ReportIn(to(0, plan.PodClient), ports); r.State != Flaky || r.Failed != 7 || !r.Since.Equal(start) {
		t.Errorf("pods met %+v", r)
	}
	if r := s.ReportIn(to(0, plan.OutsideClient), ports); r != (Report{}) {
		t.Errorf("clients outside met %+v", r)
	}
	s.publish(s.forgetReports)
	if r := s.ReportIn(to(0, plan.PodClient), ports); r != (Report{}) {
		t.Errorf("what was forgotten is %+v", r)
	}
}
