//go:build linux

package userspace

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

func TestWitness(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC))
	w := newWitness(clock)
	web := dataplane.Target{AddrPort: netip.MustParseAddrPort("10.244.1.1:8080"), Protocol: model.TCP}
	other := dataplane.Target{AddrPort: netip.MustParseAddrPort("10.244.1.2:8080"), Protocol: model.TCP}
	client := netip.MustParseAddr("10.244.1.9")
	try := func(at dataplane.Target, who netip.Addr, o dataplane.Outcome) {
		clock.Step(250 * time.Millisecond)
		w.tried(dataplane.Attempt{Client: netip.AddrPortFrom(who, 40000), Endpoint: at.AddrPort, Protocol: at.Protocol, Outcome: o, Took: 200 * time.Millisecond})
	}
	seen := func() dataplane.Seen {
		all, err := w.Seen(t.Context(), []dataplane.Target{web, other})
		if _, unwatched := all[other]; err != nil || unwatched {
			t.Fatal(all, err)
		}
		return all[web]
	}
	failures := func() []dataplane.Failure {
		all, err := w.Failures(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	watch := func(onTrial bool) {
		if err := w.Watch(t.Context(), map[dataplane.Target]dataplane.OnTrial{web: onTrial}); err != nil {
			t.Fatal(err)
		}
	}
	watch(false)
	try(other, client, dataplane.Refused)
	try(web, client, dataplane.Accepted)
	if s := seen(); s.Answered != clock.Now() || !s.Tried.IsZero() || len(failures()) > 0 {
		t.Errorf("seen %+v, failures %v", s, failures())
	}
	try(web, client, dataplane.Unanswered)
	try(web, client, dataplane.Unanswered)
	try(web, client, dataplane.Refused)
	got := map[bool]dataplane.Failure{}
	for _, f := range failures() {
		got[f.Refused] = f
	}
	if f := got[false]; f.Packets != 2 || f.Target != web || f.Client != client || f.At != clock.Now().Add(-250*time.Millisecond) || f.Waited != 200*time.Millisecond {
		t.Errorf("silence is %+v", f)
	}
	if f := got[true]; f.Packets != 1 || f.At != clock.Now() {
		t.Errorf("refusal is %+v", f)
	}
	watch(true)
	w.tried(dataplane.Attempt{Client: netip.AddrPortFrom(client, 40000), Endpoint: web.AddrPort, Protocol: web.Protocol, Outcome: dataplane.Unanswered, Took: time.Second})
	if s := seen(); !s.Tried.IsZero() {
		t.Errorf("a connection from before the trial was tried: %+v", s)
	}
	try(web, client, dataplane.Unanswered)
	try(web, client, dataplane.Unanswered)
	if s := seen(); s.Tried != clock.Now().Add(-450*time.Millisecond) {
		t.Errorf("first tried %v ago", clock.Now().Sub(s.Tried))
	}
	clock.Step(time.Minute)
	if s := seen(); s != (dataplane.Seen{}) || len(failures()) > 0 {
		t.Errorf("a minute later: %+v, %v", s, failures())
	}
	for n := range 2 * maxFailures {
		try(web, netip.MustParseAddr(fmt.Sprintf("fd00::%x", n)), dataplane.Refused)
	}
	if n := len(w.failures); n > maxFailures {
		t.Errorf("%d failures are remembered", n)
	}
	if err := w.Watch(t.Context(), nil); err != nil || len(failures()) > 0 || len(w.failures) > 0 {
		t.Errorf("watching nothing: %v, %v", err, failures())
	}
}
